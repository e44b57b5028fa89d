"""chita.prune without labels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import chita
from chita.errors import ChitaError
from chita.model.accuracy import accuracy
from chita.model.weights import Weights
from chita.pruning.stage import Stage
from tests.support.guarded import held_out_parts
from tests.support.messages import naming
from tests.support.pruning import (
    Again,
    digits,
    mlpnet,
    numbers,
    prune_quietly,
    seeded,
    tiny,
    unseen_digits,
)


class Keywords(nn.Module):
    """`tiny` by keyword."""

    def __init__(self) -> None:
        super().__init__()
        self.network = tiny()

    def forward(self, features: Tensor) -> Tensor:
        logits: Tensor = self.network(features)
        return logits


def test_tensors_tuples_and_dicts_are_all_inputs() -> None:
    x = numbers(40, 6)
    nonsense = torch.zeros(8, 2)
    vectors = []
    for model, batches in (
        (tiny(), list(x.split(8))),
        (tiny(), [(part,) for part in x.split(8)]),
        (tiny(), [(part, nonsense) for part in x.split(8)]),
        (tiny(), [[part, "what", nonsense] for part in x.split(8)]),
        (Keywords(), [{"features": part} for part in x.split(8)]),
    ):
        prune_quietly(model, batches, loss="distill")
        vectors.append(Weights(model).vector())
    assert all(torch.equal(vector, vectors[0]) for vector in vectors[1:])


def test_all_stages_look_back_at_the_network_before_the_first() -> None:
    dense, model, x = tiny(), tiny(), numbers(40, 6)
    parts = held_out_parts(Again([(x, x)]), method="chita++", batch=2)
    result = prune_quietly(model, Again([x]), loss="distill", ridge="auto", method="chita++")
    row = result.stages[-1]
    for (held, _), loss in zip(parts, (row.choice_loss, row.held_out_loss), strict=True):
        with torch.no_grad():
            log_p0, log_p = dense(held).log_softmax(1), model(held).log_softmax(1)
        expected = functional.kl_div(log_p, log_p0, log_target=True, reduction="batchmean")
        assert loss == pytest.approx(expected.item())


def test_a_resumed_run_looks_back_as_far(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    batches, whole, broken, resumed = list(numbers(40, 6).split(8)), tiny(), tiny(), tiny()
    keywords: dict[str, Any] = {"loss": "distill", "ridge": "auto"}
    prune_quietly(whole, batches, **keywords)
    stage = Stage.run

    def interrupted(self: Stage, number: int, *args: Any) -> Any:
        if number == 3:
            raise KeyboardInterrupt
        return stage(self, number, *args)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Stage, "run", interrupted)
        prune_quietly(broken, batches, **keywords, checkpoints=tmp_path)
    assert not torch.equal(Weights(broken).vector(), Weights(whole).vector())
    with pytest.raises(
        ChitaError, match=naming("stage.safetensors", "loss", "'distill'", "'distill-mse'")
    ):
        other = {**keywords, "loss": "distill-mse"}
        prune_quietly(tiny(), batches, **other, checkpoints=tmp_path, resume=True)
    prune_quietly(resumed, batches, **keywords, checkpoints=tmp_path, resume=True)
    assert torch.equal(Weights(resumed).vector(), Weights(whole).vector())


def test_one_output_is_taken_for_a_feature() -> None:
    model = seeded(lambda: nn.Linear(6, 1)).double()
    result = prune_quietly(model, [numbers(24, 6)], loss="distill", sparsity=0.5, ridge="auto")
    assert result.nonzeros == 3
    last = result.stages[-1].held_out_loss
    assert last is not None
    assert 0 < last < 1


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode])
def test_whatever_mode_the_caller_is_in(context: Any) -> None:
    model, other, batches = tiny(), tiny(), [numbers(40, 6)]
    with context():
        prune_quietly(model, batches, loss="distill", ridge="auto")
    prune_quietly(other, batches, loss="distill", ridge="auto")
    assert torch.equal(Weights(model).vector(), Weights(other).vector())


def test_errors() -> None:
    with pytest.raises(ChitaError, match=naming("loss", "distill", "distill-mse", "mse", "kl")):
        prune_quietly(tiny(), [numbers(24, 6)], loss="kl")
    with pytest.raises(ChitaError, match=naming("min_accuracy", "labels", "max_loss_increase")):
        chita.prune(
            tiny(),
            [numbers(60, 6)],
            sparsity=0.5,
            loss="distill",
            batch=2,
            min_accuracy=50,
            progress=False,
            recover=False,
        )
    with pytest.raises(ChitaError, match=naming("batches", "samples")):
        prune_quietly(tiny(), [], loss="distill")
    for unfit, shape in (({"x": numbers(24, 6)}, "(24, 6)"), (numbers(24, 5), "(24, 5)")):
        with pytest.raises(ChitaError, match=naming("model", "inputs", shape)):
            prune_quietly(tiny(), [unfit], loss="distill")
    with pytest.raises(ChitaError, match=naming("batches", "'text'", "token ids")):
        prune_quietly(tiny(), ["text"], loss="distill")
    with pytest.raises(ChitaError, match=naming("batches", "list_iterator", "DataLoader")):
        prune_quietly(tiny(), iter([numbers(24, 6)]), loss="distill")
    prune_quietly(tiny(), [], loss="distill", method="magnitude")  # reads no data


@pytest.mark.slow
def test_without_labels_the_digits_are_told_apart_as_well_as_with_them() -> None:
    """In one stage; magnitude is what the divergence itself would come to, its A being zero."""
    test, batches = unseen_digits(), digits(3000)
    found = {}
    for loss, method in (("distill", "chita-bso"), (None, "chita-bso"), (None, "magnitude")):
        model = mlpnet()
        data: Any = batches if loss is None else [images for images, _ in batches]
        chita.prune(
            model,
            data,
            sparsity=0.9,
            loss=loss,
            method=method,
            samples=250,
            batch=8,
            progress=False,
            recover=False,
        )
        found[loss, method] = accuracy(model, test)
    distill, labels, magnitude = found.values()
    assert distill > labels - 0.5
    assert distill > magnitude + 1
