"""Copies to a device that do not wait for it."""

from __future__ import annotations

import pytest
import torch

from chita.model.samples.transfer import sent

PLACES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(
    not torch.cuda.is_available(), reason="needs a GPU"))]  # fmt: skip


@pytest.mark.parametrize("place", PLACES)
def test_the_copy_has_the_values_even_if_the_source_is_dropped_at_once(place: str) -> None:
    device = torch.device(place)
    copies = [sent(torch.full((1000,), number), device) for number in range(50)]
    assert all(copy.device.type == place for copy in copies)
    assert [int(copy.sum()) for copy in copies] == [1000 * number for number in range(50)]
