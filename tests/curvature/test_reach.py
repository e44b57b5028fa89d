"""Weights that no gradient reaches are named, and left alone unless include names them."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD

import chita
from chita import ChitaError, PruneResult
from chita.curvature.gradient_rows import unreached
from chita.gradual import GradualPruner
from chita.model.samples.stream import SampleStream
from chita.model.weights import Weights
from tests.curvature.truth import labels, normal
from tests.support.messages import naming
from tests.support.pruning import cut, points, seeded, snapshot


class Frozen(nn.Module):
    """A head on a backbone whose outputs have no gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone, self.hidden, self.head = nn.Linear(6, 8), nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            x = self.backbone(x).tanh()
        logits: Tensor = self.head(self.hidden(x).tanh())
        return logits


class Detached(Frozen):
    """The same weights, of which one side branch is detached and one layer is not used."""

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.backbone(x).tanh() + self.hidden.weight.detach()[0])
        return logits


class Masked(Frozen):
    """A layer whose gradient is zero at all samples, though not None."""

    def forward(self, x: Tensor) -> Tensor:
        x = self.backbone(x).tanh()
        logits: Tensor = self.head(x + (self.hidden(x) + 100).clamp(max=1))
        return logits


class Experts(nn.Module):
    """The second expert takes the samples whose first feature is above 50."""

    def __init__(self) -> None:
        super().__init__()
        self.usual, self.rare, self.head = nn.Linear(6, 8), nn.Linear(6, 8), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        rare = x[:, 0] > 50
        hidden = x.new_zeros(len(x), 8)
        for expert, which in ((self.usual, ~rare), (self.rare, rare)):
            if which.any():
                places = which.nonzero().squeeze(1)
                hidden = hidden.index_put((places,), expert(x[places]).tanh())
        logits: Tensor = self.head(hidden)
        return logits


def prune(model: nn.Module, **keywords: Any) -> PruneResult:
    defaults = {"sparsity": 0.5, "batch": 2, "samples": 10, "ridge": 0.01, "progress": False}
    given = {"method": "chita-bso", **defaults, **keywords}
    return chita.prune(model, cut(points(40), 5), **{"recover": False, **given})


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]


@pytest.mark.parametrize(
    ("kind", "name"), [(Frozen, "backbone"), (Detached, "hidden"), (Masked, "hidden")]
)
@pytest.mark.parametrize(
    "method",
    [
        {"method": "chita-bso"},
        {"method": "obd", "first_order": None},
        {"method": "auto", "stages": 2, "ridge": "auto", "samples": None},
        {"loss": "distill"},
    ],
    ids=["chita-bso", "obd", "auto", "distill"],
)
def test_it_is_left_alone_and_named(
    kind: type[Frozen], name: str, method: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    model = seeded(kind).double()
    before = snapshot(model)
    result = prune(model, **method)
    assert torch.equal(model.get_parameter(f"{name}.weight"), before[f"{name}.weight"])
    assert f"{name}.weight" not in result.masks
    (told,) = warnings(caplog)
    assert f"{name}.weight" in told
    others = [w for w in ("backbone", "hidden", "head") if w != name]
    assert list(result.masks) == [f"{other}.weight" for other in others]
    assert not any(f"{other}.weight" in told for other in others)
    kept = sum(int((model.get_parameter(key) != 0).sum()) for key in result.masks)
    total = sum(mask.numel() for mask in result.masks.values())
    assert kept == total // 2


def test_include_prunes_it_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    model = seeded(Frozen).double()
    weight = model.backbone.weight.detach().clone()
    result = prune(model, include=["backbone.weight", "head.weight"])
    assert list(result.masks) == ["backbone.weight", "head.weight"]
    kept = model.backbone.weight != 0
    assert 0 < kept.sum() < kept.numel()
    torch.testing.assert_close(model.backbone.weight[kept], weight[kept])
    (told,) = warnings(caplog)
    assert "backbone.weight" in told
    assert "magnitude" in told
    assert "head.weight" not in told


@pytest.mark.parametrize("method", ["magnitude", "l-obs"])
def test_methods_without_gradients_prune_it(method: str, caplog: pytest.LogCaptureFixture) -> None:
    result = prune(seeded(Frozen).double(), method=method, first_order=None)
    assert list(result.masks) == ["backbone.weight", "hidden.weight", "head.weight"]
    assert warnings(caplog) == []


def test_nothing_is_reached() -> None:
    model = seeded(Frozen).double()
    before = snapshot(model)
    with pytest.raises(
        ChitaError, match=naming("prunable", "backbone.weight", "method='magnitude'")
    ):
        prune(model, exclude=["hidden.*", "head.*"])
    assert all(torch.equal(before[name], value) for name, value in snapshot(model).items())


def test_a_loss_that_is_flat_everywhere_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """All units are dead, and no weight is worse than the others."""
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)).double()
    with torch.no_grad():
        model[0].bias.fill_(-1000)
    result = prune(model)
    assert list(result.masks) == ["0.weight", "2.weight"]
    (told,) = warnings(caplog)
    assert "0.weight, 2.weight" in told


def test_a_model_that_is_all_reached_is_left_as_it_was(caplog: pytest.LogCaptureFixture) -> None:
    model = seeded(Experts).double().train()
    model.head.weight.requires_grad_(False)
    batches = SampleStream([(normal(8, 6), labels(8))]).take(8, 2)
    assert unreached(model, Weights(model, exclude="rare.*"), batches, None) == {}
    assert len(list(batches)) == 3  # one batch is enough
    assert model.training
    assert not model.head.weight.requires_grad
    assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.parametrize("sample", [0, 21, 39])
def test_an_expert_of_few_samples_is_reached(sample: int, caplog: pytest.LogCaptureFixture) -> None:
    x, t = normal(40, 6), labels(40)
    x[sample, 0] = 60
    model = seeded(Experts).double()
    given = {"sparsity": 0.5, "batch": 2, "samples": 20, "ridge": 0.01, "progress": False}
    result = chita.prune(model, cut((x, t), 5), method="chita-bso", **given)
    assert list(result.masks) == ["usual.weight", "rare.weight", "head.weight"]
    assert warnings(caplog) == []


def test_the_same_samples_are_used_as_without_the_search() -> None:
    """The search reads a stream of its own."""
    frozen, excluded = seeded(Frozen).double(), seeded(Frozen).double()
    prune(frozen, method="chita++", stages=3)
    prune(excluded, method="chita++", stages=3, exclude="backbone.*")
    for one, other in zip(frozen.parameters(), excluded.parameters(), strict=True):
        assert torch.equal(one, other)


def test_gradual_pruning_leaves_it_alone() -> None:
    model = seeded(Frozen).double()
    weight = model.backbone.weight.detach().clone()
    pruner = GradualPruner(
        model, SGD(model.parameters(), lr=0.1), [0.3, 0.6], samples=10, batch=2, ridge=0.01
    )
    for _ in range(2):
        pruner.step(cut(points(40), 5))
    assert torch.equal(model.backbone.weight, weight)
    assert pruner.masks["backbone.weight"].all()
    rest = [pruner.masks["hidden.weight"], pruner.masks["head.weight"]]
    assert sum(int(mask.sum()) for mask in rest) == int(0.4 * (64 + 24))
