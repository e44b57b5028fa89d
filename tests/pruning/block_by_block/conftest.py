"""A method whose results have a closed form, block by block."""

from __future__ import annotations

import pytest

from chita.curvature import BlockInputs
from chita.methods.l_obs import LayerWise
from chita.methods.registry import METHODS, Method


@pytest.fixture(autouse=True)
def block_obs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Register "block-obs": L-OBS with the inputs of pruned blocks."""
    monkeypatch.setitem(METHODS, "block-obs", Method("block-obs", BlockInputs, LayerWise()))
