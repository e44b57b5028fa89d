"""What pruning gives back."""

from __future__ import annotations

import json

import pytest
import torch
from torch import nn

import chita
from chita import PruneResult
from chita.model.weights import Weights
from chita.pruning.result import layer_rows
from tests.support.pruning import cut, points, tiny


def pruned(method: str = "chita++", **keywords: object) -> PruneResult:
    return chita.prune(
        tiny(),
        cut(points(30), 5),
        sparsity=0.9,
        method=method,
        batch=2,
        stages=3,
        progress=False,
        **keywords,  # type: ignore[arg-type]
        recover=False,
    )


@pytest.mark.parametrize("method", ["magnitude", "chita-cd", "chita++", "auto"])
def test_the_dict_survives_json(method: str) -> None:
    result = pruned(method, seed=5)
    text = json.dumps(result.to_dict(), allow_nan=False)
    found = json.loads(text)
    assert found["method"] == method
    assert (found["weights"], found["nonzeros"], found["seed"]) == (72, 7, 5)
    assert found["sparsity"] == pytest.approx(1 - 7 / 72)
    assert found["objective"] == result.objective
    part = found["stages"][-1]["step"] < 1  # of the way, which has no objective
    assert (found["objective"] is None) == (method == "magnitude" or part)
    assert set(found["seconds"]) == {"gradients", "solve", "held_out", "recovery", "total"}
    assert found["peak_memory_bytes"] > 10 << 20
    assert [row["name"] for row in found["layers"]] == ["0.weight", "2.weight"]
    assert sum(row["nonzeros"] for row in found["layers"]) == 7
    assert [row["stage"] for row in found["stages"]] == [1, 2, 3]
    assert found["stages"][-1]["ridge"] == found["ridge"]


def test_layers_are_counted_as_they_are() -> None:
    model = nn.Sequential(nn.Linear(3, 2), nn.Conv1d(1, 2, 2))
    with torch.no_grad():
        model[0].weight.copy_(torch.tensor([[1.0, 0.0, 2.0], [0.0, 0.0, -1.0]]))
        model[1].weight.fill_(1.0)
    first, second = layer_rows(Weights(model))
    assert (first.name, first.shape, first.weights, first.nonzeros) == ("0.weight", (2, 3), 6, 3)
    assert (first.sparsity, second.sparsity) == (0.5, 0.0)


def test_the_text_has_every_layer_and_the_totals() -> None:
    result = pruned()
    lines = str(result).splitlines()
    for row in result.layers:
        (line,) = [line for line in lines if row.name in line]
        assert str(row.nonzeros) in line and f"{row.sparsity:.2%}" in line
    (total,) = [line for line in lines if " all " in line]
    assert " 72 " in total and " 7 " in total and "90.28%" in total
    assert "chita++" in lines[0]


def test_the_representation_shows_no_tensors() -> None:
    assert "tensor" not in repr(pruned("magnitude"))
