"""Bad input gets an error that says what is wrong, and changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import chita
from chita import ChitaError
from chita.model.stream import SampleStream
from chita.pruning.calibration import divide_samples
from chita.pruning.config import PruneConfig
from tests.support.pruning import STAGED, Again, cut, points, same, snapshot, tiny

NAN, INF = float("nan"), float("inf")


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
            chita.prune(model, batches, method=method, **{**defaults, **keywords})
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
    refuse(rf"sparsity must be a number in \[0, 1\), got {sparsity!r}", sparsity=sparsity)


@pytest.mark.parametrize("argument", ["samples", "batch", "stages", "block_size"])
@pytest.mark.parametrize("value", [0, -3, 2.5, True, "16"])
def test_counts(argument: str, value: Any) -> None:
    refuse(f"{argument} must be an integer of at least 1, got {value!r}", **{argument: value})


@pytest.mark.parametrize("argument", ["iterations", "continuation"])
@pytest.mark.parametrize("value", [-1, 2.5, "5"])
def test_numbers_that_may_be_zero(argument: str, value: Any) -> None:
    refuse(f"{argument} must be an integer of at least 0, got {value!r}", **{argument: value})


@pytest.mark.parametrize("ridge", [-1, NAN, INF, "best", None, True])
def test_ridge(ridge: Any) -> None:
    refuse(f"ridge must be 'auto' or a finite number of at least 0, got {ridge!r}", ridge=ridge)


@pytest.mark.parametrize("argument", ["start", "hold"])
@pytest.mark.parametrize("value", [-0.1, 1.0, NAN, "0.2", None])
def test_shares_of_the_schedule(argument: str, value: Any) -> None:
    refuse(rf"{argument} must be a number in \[0, 1\), got {value!r}", **{argument: value})


@pytest.mark.parametrize("seed", [-1, None, 1.5, 2**64])
def test_seed(seed: Any) -> None:
    refuse(rf"seed must be an integer from 0 to 2\*\*64 - 1, got {seed!r}", seed=seed)


def test_names() -> None:
    refuse(r"method must be one of \[.*'chita\+\+'.*'magnitude'.*\], got 'x'", method="x")
    refuse(r"solver must be one of \['bso', 'cd'\], got 'iht'", solver="iht", method="chita++")
    refuse(r"solver='cd'.*chita\+\+.*method='magnitude'", solver="cd", method="magnitude")
    refuse(r"schedule must be one of \['constant', .*\], got 'cubic'", schedule="cubic")


def test_which_weights() -> None:
    refuse("no prunable weights", model=nn.Sequential(nn.BatchNorm1d(6), nn.ReLU()))
    refuse("no prunable weights.*exclude='\\*.weight'", exclude="*.weight")
    refuse(r"include='fc\*' matches no parameter; the names are 0.weight", include="fc*")
    refuse(r"exclude='fc\*' matches no parameter", exclude=["0.*", "fc*"])
    refuse("include must be a glob pattern of parameter names, or several, got 5", include=5)
    refuse("exclude must be a glob pattern .* got \\[1\\]", exclude=[1])


@pytest.mark.parametrize("method", ["magnitude", "chita-bso", *STAGED])
def test_models_that_cannot_be_pruned(method: str) -> None:
    refuse("model must be a torch.nn.Module, got dict", model={"a": 1}, method=method)
    model = tiny()
    model[2].weight = nn.Parameter(torch.ones(3, 8, dtype=torch.int64), requires_grad=False)
    refuse("'2.weight' holds torch.int64", model=model, method=method)
    with torch.inference_mode():
        model = tiny()
    refuse("'0.weight' was made under torch.inference_mode", model=model, method=method)
    for bad in (NAN, INF):
        model = tiny()
        model[2].weight.data[1, 2] = bad
        refuse("'2.weight' holds NaN or infinite weights", model=model, method=method)


@pytest.mark.parametrize("method", ["magnitude", *STAGED])
def test_models_on_two_devices_or_none(method: str) -> None:
    with pytest.raises(ChitaError, match=r"several devices \('0.bias' on cpu, '1.bias' on meta\)"):
        chita.prune(
            nn.Sequential(nn.Linear(6, 4), nn.Linear(4, 3, device="meta")),
            [points(4)],
            sparsity=0.5,
            method=method,
        )
    for model in (nn.Linear(6, 3, device="meta"), nn.LazyLinear(3)):
        with pytest.raises(ChitaError, match="'weight' holds no values yet; load or initialise"):
            chita.prune(model, [points(4)], sparsity=0.5, method=method)


@pytest.mark.parametrize("ridge", [0.1, "auto"])
def test_batches_without_samples(ridge: Any) -> None:
    empty = [(torch.zeros(0, 6), torch.zeros(0))]
    refuse("batches hold no samples", batches=[], ridge=ridge)
    refuse("batches hold no samples", batches=empty, ridge=ridge)
    refuse("batches hold no samples", batches=Again([]), ridge=ridge)
    once = (pair for pair in cut(points(24), 5))
    refuse("generator, which can be read only once; pass a list", batches=once, ridge=ridge)
    for given, kind in ((None, "NoneType"), (5, "int")):
        message = f"batches must be a list or a DataLoader .* got a {kind}"
        refuse(message, batches=given, given=False, ridge=ridge)


def test_fewer_samples_than_asked() -> None:
    each = r"of (\d+) samples each \(batch=\1\) need"
    hold = "but batches hold 24; give more data, or"
    message = f"samples=13 rows {each} 26 samples, {hold} batch=1 or less$"
    refuse(message, samples=13, ridge=0.1, method="chita++")
    message = f"samples=25 rows {each} 50 samples, {hold} fewer samples, which are rows$"
    refuse(message, samples=25, ridge=0.1, method="chita++")
    message = f"one row {each} 25 samples, {hold} batch=24 or less$"
    refuse(message, batch=25, ridge=1, method="chita++")
    some = f"samples=12 rows {each} 24 samples and some to hold out for"
    ways = f"{hold} batch=1 or less, or ridge a number$"
    refuse(f"{some} ridge='auto', {ways}", samples=12, method="chita++")
    refuse(f"{some} method='auto', {hold} batch=1 or less$", samples=12, method="auto")
    refuse(f"one row {each} 24 samples and some to hold out", batch=24)


def test_batches_of_the_wrong_form() -> None:
    pairs: list[Any] = cut(points(40), 5)
    pairs[3] = pairs[3][0]
    refuse(r"batch 3 must be a pair \(inputs, targets\) .* got a tensor of shape", batches=pairs)
    pairs[3] = (pairs[0][0], pairs[0][1][:4])
    refuse(r"batch 3: every tensor must hold the same number of .* \(5, 6\), \(4,\)", batches=pairs)
    refuse("batch 0: targets hold no tensor, got a int", batches=[(points(3)[0], 3)])
    refuse("batch 0 must be a pair", batches=points(24)[0])
    message = r"fails on inputs of shape \(\d+, 5\) \(torch.float64\): .*(shapes|size)"
    refuse(message, batches=[(x[:, :5], t) for x, t in cut(points(24), 5)])
    refuse(
        r"the cross-entropy takes no outputs of shape \(2, 3\).*targets of shape \(2, 6\)",
        batches=[(x, x.long()) for x, t in cut(points(24), 5)],
    )
    refuse("fails on inputs .* unexpected keyword argument 'x'", batches=[{"x": points(24)[0]}])


def place_of(number: int, x: Tensor, batch: int = 2, **keywords: Any) -> tuple[str, int]:
    """The part of the samples that one of them belongs to, and its place there."""
    config = PruneConfig(sparsity=0.5, batch=batch, **keywords)
    stream = SampleStream(Again(cut((x, torch.arange(len(x))), 100)), config.seed)
    found = divide_samples(stream, config)
    rows = list(found.stream.take(found.rows * batch, 100))
    for name, part in (("A", rows), ("chooses", found.held_out), ("measures", found.measured)):
        numbers = torch.cat([torch.empty(0), *(piece.content[1] for piece in part)])
        if number in numbers:
            return name, int((numbers == number).nonzero())
    return "none", 0


def spoil(
    change: Callable[[Tensor], object],
    wanted: Callable[[str, int], bool],
    size: int = 24,
    **keywords: Any,
) -> tuple[tuple[Tensor, Tensor], int]:
    """Change a sample in place, such a one that is at a wanted place then: its content decides
    where. Gives all of them, and that place."""
    for seed, number in product(range(5), range(size)):
        x, t = points(size, seed=seed)
        change(x[number])
        part, place = place_of(number, x, **keywords)
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
    message, batches = f"loss of row {place // 2} of A .* is nan", Again([pair])
    refuse(message, model=model, batches=batches, method=method, ridge=ridge)


@pytest.mark.parametrize(
    ("part", "message"),
    [
        ("chooses", "the held-out loss is nan for every candidate .* the data must be finite"),
        ("measures", "stage 1 has a held-out loss of nan; the data must be finite"),
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
        (0, "stage 1 has a held-out loss of nan; the data must be finite"),
        (1, "the held-out loss is nan for every candidate"),
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
        ("mse", "loss must be a function .* got 'mse'"),
        (lambda y, t: y.square().mean(1), r"must be a scalar tensor .* got one of shape \(2,\)"),
        (lambda y, t: 0.5, "must be a scalar tensor .* got one of type float"),
        (lambda y, t: y.mean().item(), "must be a scalar tensor .* no .item"),
        (lambda y, t: y.mean().detach(), "loss does not depend on the prunable weights"),
        (
            lambda y, t: functional.mse_loss(y, t),
            r"loss fails on outputs of shape \(2, 3\) .* and targets of shape \(2,\) .*: Runtime",
        ),
        (lambda y, t: {}["x"], "loss fails on outputs .*: KeyError: 'x'"),
        (lambda y, t: y.mean() * NAN, "loss of row 0 of A .* is nan"),
        (lambda y, t: y.mean() + INF, "loss of row 0 of A .* is inf"),
        (
            lambda y, t: y.mean() + torch.where(t.sum() == 9, INF, 0.0),
            "loss of row 3 of A .* is inf",
        ),
    ],
)
def test_losses(loss: Callable[[Tensor, Tensor], Any], message: str) -> None:
    for method, ridge in HOLDING:
        x, t = points(24)[0], torch.zeros(24)
        places = [place_of(number, x, method=method, ridge=ridge) for number in range(24)]
        t[places.index(("A", 6))] = 9
        refuse(message, batches=Again([(x, t)]), loss=loss, method=method, ridge=ridge)


def test_a_models_own_loss() -> None:
    class NoLoss(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(6, 3).double()

        def forward(self, x: Tensor) -> SimpleNamespace:
            return SimpleNamespace(logits=self.layer(x))

    refuse("no .loss for a batch with the keys x", model=NoLoss(), batches=[{"x": points(24)[0]}])
    dicts = [{"x": points(24)[0]}]
    refuse("loss= is for batches of", model=NoLoss(), batches=dicts, loss=lambda y, t: y.mean())


@pytest.mark.parametrize(("method", "ridge"), HOLDING)
def test_gradients_that_are_not_finite(method: str, ridge: Any) -> None:
    pair, place = spoil(Tensor.zero_, is_in_a, method=method, ridge=ridge)
    model = nn.Sequential(nn.Linear(6, 3, bias=False)).double()

    def root(outputs: Tensor, targets: Tensor) -> Tensor:
        return outputs.abs().sqrt().mean()  # finite at zero, its derivative is not

    message = f"gradients of 0.weight are not finite for row {place // 2} of A"
    batches = Again([pair])
    refuse(message, model=model, batches=batches, loss=root, method=method, ridge=ridge)


@pytest.mark.parametrize("method", ["chita-cd", "chita-bso", *STAGED])
def test_gradients_too_large_to_compute_with(method: str) -> None:
    def huge(outputs: Tensor, targets: Tensor) -> Tensor:
        return outputs.square().mean() * 1e200

    refuse("not finite", loss=huge, ridge=0.1, method=method)


def test_wrong_types_of_names_and_numbers() -> None:
    refuse("solver must be one of", solver=["cd"], method="chita++")
    refuse("ridge must be 'auto' or a finite number", ridge=torch.ones(2))
