"""A run is resumed with its own data only: every sample counts, not those of the first batch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

from chita import ChitaError
from tests.support.interrupting import STAGES, interrupt_after, prune
from tests.support.messages import naming
from tests.support.pruning import cut, points, tiny


def interrupted(folder: Path, batches: Any, **keywords: Any) -> None:
    model = tiny()
    interrupt_after(model, folder, 2)
    with pytest.raises(KeyboardInterrupt):
        prune(model, batches, folder, **{"recover": False, **keywords})


def resume(folder: Path, batches: Any, **keywords: Any) -> int:
    keywords = {"recover": False, **keywords}
    return len(prune(tiny(), batches, folder, resume=True, **keywords).stages)


def other(what: int) -> tuple[Tensor, Tensor]:
    """The points, but for the input or the target of the last one."""
    pair = points(41)
    pair[what][-1] = (pair[what][-1] + 1) % 3
    return pair


@pytest.mark.parametrize("what", [0, 1])
@pytest.mark.parametrize(
    "batches",
    [lambda pair: cut(pair, 7), lambda pair: DataLoader(TensorDataset(*pair), 7, shuffle=True)],
)
def test_another_sample_in_the_last_batch(batches: Any, what: int, tmp_path: Path) -> None:
    interrupted(tmp_path, batches(points(41)))
    with pytest.raises(ChitaError, match=naming("stage.safetensors", "data")):
        resume(tmp_path, batches(other(what)))
    assert resume(tmp_path, batches(points(41))) == STAGES


def test_another_target_that_is_held_out(tmp_path: Path) -> None:
    keywords: dict[str, Any] = {"ridge": "auto", "samples": 8}
    interrupted(tmp_path, cut(points(60, seed=1), 7), held_out=cut(points(41), 7), **keywords)
    with pytest.raises(ChitaError, match=naming("stage.safetensors", "held_out")):
        resume(tmp_path, cut(points(60, seed=1), 7), held_out=cut(other(1), 7), **keywords)
