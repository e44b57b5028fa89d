"""Bad input gets an error that says what is wrong, and changes nothing."""

from __future__ import annotations

import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import chita
from chita import ChitaError
from chita.model.sample_stream import SampleStream
from chita.pruning.calibration import divide_samples
from chita.pruning.config import PruneConfig
from tests.support.messages import naming
from tests.support.pruning import STAGED, Again, cut, points, same, snapshot, tiny

NAN, INF = float("nan"), float("inf")
NOWHERE = ("none", 0)
HOLD_OUT = re.compile(r"h[eo]ld[- ]out")


def refuse(
    message: str, *, model: Any = None, batches: Any = None, given: bool = True, **keywords: Any
) -> None:
    """prune(model, batches, **keywords) is an error, and the model is what it was before.

    Both for CHITA++ and for auto, unless a method is named.
    """
    model = batch_normed() if model is None else model
    batches = cut(points(24), 5) if batches is None and given else batches
    is_module = isinstance(model, nn.Module)
    before = snapshot(model) if is_module else {}
    flags = [module.training for module in model.modules()] if is_module else []
    defaults: dict[str, Any] = {"sparsity": 0.5, "batch": 2, "stages": 2, "progress": False}
    for method in [keywords.pop("method")] if "method" in keywords else STAGED:
        with pytest.raises(ChitaError, match=message):
            chita.prune(model, batches, method=method, **{**defaults, **keywords}, recover=False)
        if is_module:
            assert same(snapshot(model), before)
            assert [module.training for module in model.modules()] == flags


def batch_normed() -> nn.Sequential:
    """tiny() with buffers, of which one layer is in eval mode."""
    model = nn.Sequential(*tiny(), nn.BatchNorm1d(3)).double().train()
    model[1].eval()
    return model


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


def places_of(x: Tensor, batch: int = 2, **keywords: Any) -> dict[int, tuple[str, int]]:
    """The part of the samples that each of them belongs to, and its place there."""
    config = PruneConfig(sparsity=0.5, batch=batch, **keywords, recover=False)
    stream = SampleStream(Again(cut((x, torch.arange(len(x))), 100)), config.seed)
    found = divide_samples(stream, config)
    rows = list(found.stream.take(found.rows * batch, 100))
    places: dict[int, tuple[str, int]] = {}
    for name, part in (("measures", found.measured), ("chooses", found.held_out), ("A", rows)):
        numbers = [int(number) for piece in part for number in piece.content[1]]
        places |= {number: (name, place) for place, number in enumerate(numbers)}
    return places


def spoil(
    change: Callable[[Tensor], object],
    wanted: Callable[[str, int], bool],
    size: int = 24,
    **keywords: Any,
) -> tuple[tuple[Tensor, Tensor], int]:
    """Change a sample in place, such a one that is at a wanted place then: its content decides
    where. Gives all of them, and that place."""
    for seed in range(5):
        x, t = points(size, seed=seed)
        many = x.clone()
        for row in many[::2]:
            change(row)
        guess = places_of(many, **keywords)  # those changed are about there when changed alone
        likely = [number for number in range(0, size, 2) if wanted(*guess.get(number, NOWHERE))]
        for number in dict.fromkeys((*likely, *range(size))):
            x, t = points(size, seed=seed)
            change(x[number])
            part, place = places_of(x, **keywords).get(number, NOWHERE)
            if wanted(part, place):
                return (x, t), place
    raise AssertionError("no sample is there")


def is_in_a(part: str, place: int) -> bool:
    return part == "A" and place > 2


HOLDING = [("chita++", 0.1), ("chita++", "auto"), ("auto", 0.1), ("auto", "auto")]


@pytest.mark.parametrize(("method", "ridge"), HOLDING)
@pytest.mark.parametrize("bad", [NAN, INF])
def test_inputs_that_are_not_finite(method: str, ridge: Any, bad: float) -> None:
    pair, place = spoil(lambda x: x[2:3].fill_(bad), is_in_a, method=method, ridge=ridge)
    model = nn.Sequential(tiny()[0], nn.ReLU(), tiny()[2])
    message, batches = naming("loss", f"row {place // 2}", NAN), Again([pair])
    refuse(message, model=model, batches=batches, method=method, ridge=ridge)


@pytest.mark.parametrize(
    ("part", "message"),
    [
        ("chooses", naming("held-out loss", NAN, re.compile("candidate"))),
        ("measures", naming("held-out loss", NAN, "stage 1")),
    ],
)
def test_held_out_inputs_that_are_not_finite(part: str, message: str) -> None:
    pair, _ = spoil(lambda x: x[2:3].fill_(NAN), lambda found, _: found == part)
    refuse(message, batches=Again([pair]))
    refuse(message, batches=Again([pair]), method="auto", ridge=0.1)
    for floor in ({"max_loss_increase": 1.0}, {"min_accuracy": 2.0}):
        refuse(message, batches=Again([pair]), method="auto", **floor)


@pytest.mark.parametrize(
    ("half", "message"),
    [
        (0, naming("held-out loss", NAN, "stage 1")),
        (1, naming("held-out loss", NAN, re.compile("candidate"))),
    ],
)
def test_either_half_of_many_held_out_inputs_is_not_finite(half: int, message: str) -> None:
    keywords: dict[str, Any] = {"method": "auto", "samples": 80, "batch": 100}
    pair, _ = spoil(
        lambda x: x[2:3].fill_(NAN),
        lambda part, place: part == "chooses" and place // 100 % 2 == half,
        size=12_000,
        **keywords,
    )
    refuse(message, batches=Again(cut(pair, 100)), stages=1, **keywords)


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        ("mse", naming("loss", "'mse'")),
        (lambda y, t: y.square().mean(1), naming("loss", "scalar", "(2,)")),
        (lambda y, t: 0.5, naming("loss", "scalar", "float")),
        (lambda y, t: y.mean().item(), naming("loss", "scalar", ".item()")),
        (lambda y, t: y.mean().detach(), naming("loss", "prunable")),
        (
            lambda y, t: functional.mse_loss(y, t),
            naming("loss", "outputs", "(2, 3)", "targets", "(2,)", "RuntimeError"),
        ),
        (lambda y, t: {}["x"], naming("loss", "outputs", "KeyError: 'x'")),
        (lambda y, t: y.mean() * NAN, naming("loss", "row 0", NAN)),
        (lambda y, t: y.mean() + INF, naming("loss", "row 0", INF)),
        (
            lambda y, t: y.mean() + torch.where(t.sum() == 9, INF, 0.0),
            naming("loss", "row 3", INF),
        ),
    ],
)
def test_losses(loss: Callable[[Tensor, Tensor], Any], message: str) -> None:
    for method, ridge in HOLDING:
        x, t = points(24)[0], torch.zeros(24)
        places = places_of(x, method=method, ridge=ridge)
        t[next(number for number, place in places.items() if place == ("A", 6))] = 9
        refuse(message, batches=Again([(x, t)]), loss=loss, method=method, ridge=ridge)


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


@pytest.mark.parametrize(("method", "ridge"), HOLDING)
def test_gradients_that_are_not_finite(method: str, ridge: Any) -> None:
    pair, place = spoil(Tensor.zero_, is_in_a, method=method, ridge=ridge)
    model = nn.Sequential(nn.Linear(6, 3, bias=False)).double()

    def root(outputs: Tensor, targets: Tensor) -> Tensor:
        return outputs.abs().sqrt().mean()  # finite at zero, its derivative is not

    message = naming("gradients", "0.weight", f"row {place // 2}")
    batches = Again([pair])
    refuse(message, model=model, batches=batches, loss=root, method=method, ridge=ridge)


@pytest.mark.parametrize("method", ["chita-cd", "chita-bso", *STAGED])
def test_gradients_too_large_to_compute_with(method: str) -> None:
    def huge(outputs: Tensor, targets: Tensor) -> Tensor:
        return outputs.square().mean() * 1e200

    refuse(naming(re.compile("finite")), loss=huge, ridge=0.1, method=method)


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
