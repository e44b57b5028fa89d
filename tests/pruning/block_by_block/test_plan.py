"""How many samples run through a section at once."""

from __future__ import annotations

import pytest
import torch

from chita.pruning.block_by_block import plan
from chita.pruning.block_by_block.plan import PASS_FACTOR, PASS_SHARE, samples_at_once

OUTPUT = 1000  # bytes of the output of a block


class Blocks:
    """The part of `Sections` that the plan reads."""

    output_bytes = OUTPUT


@pytest.mark.parametrize(("fitting", "expected"), [(2, 4), (20, 20), (1000, 32)])
def test_a_gpu_takes_as_many_as_fit(
    monkeypatch: pytest.MonkeyPatch, fitting: int, expected: int
) -> None:
    free = int(fitting * PASS_FACTOR * OUTPUT / PASS_SHARE) + PASS_FACTOR
    monkeypatch.setattr(plan, "free_bytes", lambda device: free)
    assert samples_at_once(4, Blocks(), torch.device("cuda")) == expected  # type: ignore[arg-type]


def test_a_cpu_takes_the_batches_of_the_user() -> None:
    assert samples_at_once(4, Blocks(), torch.device("cpu")) == 4  # type: ignore[arg-type]
