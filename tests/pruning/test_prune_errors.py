"""Bad input gets an error that says what is wrong, and changes nothing."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import chita
from chita import ChitaError
from chita.pruning.config import PruneConfig
from tests.support.messages import naming
from tests.support.pruning import STAGED, Again, cut, points, tiny
from tests.support.refusing import INF, NAN, refuse

HOLD_OUT = re.compile(r"h[eo]ld[- ]out")


@pytest.mark.parametrize("sparsity", [-0.1, 1.0, 1.5, NAN, INF, "0.9", True, None, 90])
def test_sparsity(sparsity: Any) -> None:
    refuse(naming("sparsity", repr(sparsity)), sparsity=sparsity)


def test_a_wrong_sparsity_shows_a_right_one() -> None:
    refuse(naming("sparsity", "'0.5'", "2:4"), sparsity="0.5")
    refuse(naming("sparsity", "'abc'", "2:4"), sparsity="abc")
    refuse(naming("sparsity", 90, 0.9), sparsity=90)
    with pytest.raises(ChitaError, match=naming("sparsity", "number", "pattern='2:4'")):
        PruneConfig(sparsity="2:4", recover=False)  # type: ignore[arg-type]


@pytest.mark.parametrize("argument", ["samples", "batch", "stages", "block_size"])
@pytest.mark.parametrize("value", [0, -3, 2.5, True, "16"])
def test_counts(argument: str, value: Any) -> None:
    refuse(naming(argument, repr(value)), **{argument: value})


@pytest.mark.parametrize("argument", ["iterations", "continuation"])
@pytest.mark.parametrize("value", [-1, 2.5, "5"])
def test_numbers_that_may_be_zero(argument: str, value: Any) -> None:
    refuse(naming(argument, repr(value)), **{argument: value})


@pytest.mark.parametrize("ridge", [-1, NAN, INF, "best", None, True])
def test_ridge(ridge: Any) -> None:
    refuse(naming("ridge", "auto", repr(ridge)), ridge=ridge)


@pytest.mark.parametrize("argument", ["start", "hold"])
@pytest.mark.parametrize("value", [-0.1, 1.0, NAN, "0.2", None])
def test_shares_of_the_schedule(argument: str, value: Any) -> None:
    refuse(naming(argument, repr(value)), **{argument: value})


@pytest.mark.parametrize("seed", [-1, None, 1.5, 2**64])
def test_seed(seed: Any) -> None:
    refuse(naming("seed", repr(seed)), seed=seed)


def test_names() -> None:
    refuse(naming("method", "'chita++'", "'magnitude'", "'x'"), method="x")
    refuse(naming("solver", ["bso", "cd"], "'iht'"), solver="iht", method="chita++")
    refuse(naming("solver='cd'", "chita++", "'magnitude'"), solver="cd", method="magnitude")
    refuse(naming("schedule", "'constant'", "'cubic'"), schedule="cubic")


def test_which_weights() -> None:
    refuse(naming("prunable", "exclude=None"), model=nn.Sequential(nn.BatchNorm1d(6), nn.ReLU()))
    refuse(naming("prunable", "exclude='*.weight'"), exclude="*.weight")
    refuse(naming("include", "fc*", "0.weight"), include="fc*")
    refuse(naming("exclude", "fc*", "0.weight"), exclude=["0.*", "fc*"])
    refuse(naming("include", 5), include=5)
    refuse(naming("exclude", [1]), exclude=[1])


@pytest.mark.parametrize("method", ["magnitude", "chita-bso", *STAGED])
def test_models_that_cannot_be_pruned(method: str) -> None:
    refuse(naming("model", "torch.nn.Module", "dict"), model={"a": 1}, method=method)
    model = tiny()
    model[2].weight = nn.Parameter(torch.ones(3, 8, dtype=torch.int64), requires_grad=False)
    refuse(naming("exclude='2.weight'", torch.int64), model=model, method=method)
    with torch.inference_mode():
        model = tiny()
    refuse(naming("'0.weight'", "torch.inference_mode()"), model=model, method=method)
    for bad in (NAN, INF):
        model = tiny()
        model[2].weight.data[1, 2] = bad
        refuse(naming("'2.weight'", "NaN"), model=model, method=method)


@pytest.mark.parametrize("method", ["magnitude", *STAGED])
def test_models_on_two_devices_or_none(method: str) -> None:
    with pytest.raises(ChitaError, match=naming("devices", "0.bias", "cpu", "1.bias", "meta")):
        chita.prune(
            nn.Sequential(nn.Linear(6, 4), nn.Linear(4, 3, device="meta")),
            [points(4)],
            sparsity=0.5,
            method=method,
            recover=False,
        )
    for model in (nn.Linear(6, 3, device="meta"), nn.LazyLinear(3)):
        with pytest.raises(ChitaError, match=naming("'weight'")):
            chita.prune(model, [points(4)], sparsity=0.5, method=method, recover=False)


@pytest.mark.parametrize("ridge", [0.1, "auto"])
def test_batches_without_samples(ridge: Any) -> None:
    empty = [(torch.zeros(0, 6), torch.zeros(0))]
    refuse(naming("batches", "samples"), batches=[], ridge=ridge)
    refuse(naming("batches", "samples"), batches=empty, ridge=ridge)
    refuse(naming("batches", "samples"), batches=Again([]), ridge=ridge)
    once = (pair for pair in cut(points(24), 5))
    refuse(naming("batches", "generator", "list"), batches=once, ridge=ridge)
    for given, kind in ((None, "NoneType"), (5, "int")):
        message = naming("batches", "DataLoader", kind)
        refuse(message, batches=given, given=False, ridge=ridge)


def test_fewer_samples_than_asked() -> None:
    message = naming("samples=13", "batch=2", 26, "batches", 24, "batch=1")
    refuse(message, samples=13, ridge=0.1, method="chita++")
    message = naming("samples=25", "batch=2", 50, "batches", 24, without="batch=1")
    refuse(message, samples=25, ridge=0.1, method="chita++")
    message = naming("batch=25", "batches", 24, "batch=24")
    refuse(message, batch=25, ridge=1, method="chita++")
    some = ("samples=12", "batch=2", "batches", 24, HOLD_OUT, "batch=1")
    refuse(naming(*some, "ridge='auto'"), samples=12, method="chita++")
    refuse(naming(*some, "method='auto'"), samples=12, method="auto")
    refuse(naming("batch=24", "batches", 24, HOLD_OUT), batch=24)


def test_batches_of_the_wrong_form() -> None:
    pairs: list[Any] = cut(points(40), 5)
    pairs[3] = pairs[3][0]
    refuse(naming("batch 3", "(inputs, targets)", "tensor", "(5, 6)"), batches=pairs)
    pairs[3] = (pairs[0][0], pairs[0][1][:4])
    refuse(naming("batch 3", "(5, 6), (4,)"), batches=pairs)
    refuse(naming("batch 0", "targets", "int"), batches=[(points(3)[0], 3)])
    alone = [points(24)[0]]
    refuse(naming("batch 0", "(inputs, targets)", "(24, 6)"), batches=alone, loss="cross_entropy")
    message = naming("model", "inputs", re.compile(r"\(\d+, 5\)"), torch.float64)
    refuse(message, batches=[(x[:, :5], t) for x, t in cut(points(24), 5)])
    refuse(
        naming("cross-entropy", "(2, 3)", "(2, 6)", "loss="),
        batches=[(x, x.long()) for x, t in cut(points(24), 5)],
    )
    refuse(naming("model", "unexpected keyword argument 'x'"), batches=[{"x": points(24)[0]}])


def test_a_models_own_loss() -> None:
    class NoLoss(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(6, 3).double()

        def forward(self, x: Tensor) -> SimpleNamespace:
            return SimpleNamespace(logits=self.layer(x))

    refuse(naming(".loss", "x", "loss='distill'"), model=NoLoss(), batches=[{"x": points(24)[0]}])
    dicts = [{"x": points(24)[0]}]
    refuse(
        naming("loss=", "(inputs, targets)", ".loss"),
        model=NoLoss(),
        batches=dicts,
        loss=lambda y, t: y.mean(),
    )


def test_wrong_types_of_names_and_numbers() -> None:
    refuse(naming("checkpoints", "Path", 3), checkpoints=3)
    refuse(naming("solver", ["cd"]), solver=["cd"], method="chita++")
    refuse(naming("ridge", "auto", "tensor"), ridge=torch.ones(2))


def test_keys_that_are_not_arguments_of_the_model() -> None:
    x, y = points(24)
    given = {"features": x, "label": y}
    refuse(naming("input", "'features'", "'label'", "(inputs, targets)"), batches=given)


def test_one_hot_integers() -> None:
    x, y = points(24)
    hot = functional.one_hot(y, 3)
    refuse(naming("targets.argmax(1)", "targets.float()"), batches=[(x, hot)])


def test_a_class_or_a_state_in_place_of_a_model() -> None:
    refuse(naming("model", "Linear(...)"), model=nn.Linear)
    refuse(naming("model", "load_state_dict"), model=tiny().state_dict())


def test_an_option_that_extends_a_name() -> None:
    refuse(naming("'batch_size'", re.compile("did you mean 'batch'")), batch_size=4)
