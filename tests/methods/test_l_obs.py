"""L-OBS as a method of chita.prune, on whole networks."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import chita
from chita import ChitaError
from chita.curvature.source import no_rows
from chita.methods.l_obs import LayerWise
from chita.solver.algorithm import Layout
from chita.solver.constraints.tiles import Tiles
from chita.solver.options import Options, Trace
from chita.solver.problem import Problem
from tests.curvature.truth import head
from tests.support.messages import naming
from tests.support.pruning import cut, numbers, points, seeded, snapshot, tiny


def dense(w: Tensor, moment: Tensor, lam: float, mask: Tensor) -> Tensor:
    """The summed update of a layer (outputs, i) whose kept weights are known."""
    inverse = torch.linalg.inv(moment + lam * torch.eye(len(moment), dtype=w.dtype))
    moved = w.clone()
    for o, q in (~mask).nonzero().tolist():
        moved[o] -= inverse[q] * w[o, q] / inverse[q, q]
    return moved * mask


def test_a_linear_network() -> None:
    model, (x, t) = tiny(), points(60)
    before = snapshot(model)
    result = chita.prune(
        model, [(x, t)], sparsity=0.5, method="l-obs", batch=4, ridge=0.01, progress=False
    )
    hidden = (x @ before["0.weight"].t() + before["0.bias"]).tanh()
    for name, inputs in (("0.weight", x), ("2.weight", hidden)):
        mask, w = result.masks[name], before[name]
        moment = inputs.t() @ inputs / 60
        expected = dense(w, moment, 0.01, mask)
        torch.testing.assert_close(model.get_parameter(name).data, expected, rtol=1e-8, atol=1e-9)
        assert int(mask.sum()) == mask.numel() // 2
        inverse = torch.linalg.inv(moment + 0.01 * torch.eye(len(moment), dtype=w.dtype))
        statistic = w.square() / inverse.diagonal()
        assert statistic[mask].min() > statistic[~mask].max()
    assert result.samples == 15
    stage = result.stages[0]
    assert (stage.ridge, stage.objective) == (0.01, None)
    assert stage.loss == pytest.approx(
        nn.functional.cross_entropy(hidden @ before["2.weight"].t() + before["2.bias"], t).item()
    )


@pytest.mark.parametrize(
    "shape",
    [{}, {"groups": 2}, {"stride": 2, "padding": 1}, {"groups": 2, "stride": (2, 1), "padding": 2}],
    ids=str,
)
def test_a_convolution(shape: dict[str, Any]) -> None:
    conv = seeded(lambda: nn.Conv2d(4, 6, 3, **shape)).double()
    model = nn.Sequential(conv, nn.Tanh(), head(6)).double()
    x, w = numbers(10, 4, 7, 6), conv.weight.detach().clone()
    targets = torch.arange(10) % 3
    chita.prune(
        model,
        [(x, targets)],
        sparsity=0.6,
        method="l-obs",
        batch=2,
        ridge=0.02,
        include="0.weight",
        progress=False,
    )
    windows = nn.functional.unfold(x, 3, padding=conv.padding, stride=conv.stride)
    groups = conv.groups
    inputs = windows.transpose(1, 2).reshape(-1, groups, 36 // groups)
    mask = conv.weight.detach() != 0
    for g in range(groups):
        rows = slice(g * 6 // groups, (g + 1) * 6 // groups)
        moment = inputs[:, g].t() @ inputs[:, g] / len(inputs)
        expected = dense(w[rows].flatten(1), moment, 0.02, mask[rows].flatten(1))
        torch.testing.assert_close(conv.weight[rows].flatten(1), expected, rtol=1e-8, atol=1e-9)
    assert int(mask.sum()) == int(0.4 * w.numel() + 1e-6)


@pytest.mark.parametrize("ridge", ["auto", 1e-3])
@pytest.mark.parametrize("stages", [1, 3])
@pytest.mark.parametrize("block_size", [None, 20])
def test_prunes_in_stages(ridge: Any, stages: int, block_size: int | None) -> None:
    result = chita.prune(
        tiny(),
        cut(points(120), 10),
        sparsity=0.75,
        method="l-obs",
        samples=40,
        batch=2,
        ridge=ridge,
        stages=stages,
        block_size=block_size,
        progress=False,
    )
    assert result.nonzeros == 18 and len(result.stages) == stages
    assert [int(mask.sum()) for mask in result.masks.values()] == [12, 6]
    assert result.stages[-1].objective is None and result.stages[-1].ridge is not None
    assert (result.stages[-1].held_out_loss is not None) == (ridge == "auto")


def test_a_tile_costs_the_sum_of_the_costs_of_its_weights() -> None:
    """By the root of the sum of squared costs, the tile of 9 would be kept."""
    costs = torch.tensor([9.0, 0.01, 4.84, 4.84]).double()
    moments = (torch.eye(4).double()[None],)
    problem = Problem.build(
        no_rows(costs),
        costs.sqrt(),
        lam=0.0,
        alpha=0.0,
        constraint=Tiles(torch.tensor([0, 0, 1, 1])),
        moments=moments,
    )
    point, _ = LayerWise().run(problem, 2, Layout((4,)), Options(), Trace(0))
    assert point.support.tolist() == [2, 3]


def test_weights_of_no_layer_are_named() -> None:
    keywords = {"sparsity": 0.5, "method": "l-obs", "ridge": 0.1, "batch": 2, "progress": False}
    with pytest.raises(ChitaError, match=naming("exclude='0.bias'")):
        chita.prune(tiny(), [points(24)], include="*", **{"recover": False, **keywords})


def test_a_hessian_without_inverse_is_an_error() -> None:
    x, t = points(24)
    x[:, 0] = 0.0
    with pytest.raises(ChitaError, match=naming("stage 1", re.compile("finite"), "ridge")):
        chita.prune(tiny(), [(x, t)], sparsity=0.5, method="l-obs", ridge=0.0, progress=False)
