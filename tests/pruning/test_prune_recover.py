"""chita.prune with recovery: sparsity, stages, bits, floors and interruptions."""

from __future__ import annotations

import copy
import json
import math
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import chita
from chita import ChitaError, PruneResult
from chita.files.run_folder import STAGE_FILE
from chita.model.weights import Weights
from chita.pruning.config import kept_weights
from chita.pruning.result_rows import StageRow
from chita.pruning.resume import StageFile
from chita.pruning.setup import Setup
from tests.support.guarded import accuracy_of, fit
from tests.support.interrupting import interrupt_at
from tests.support.messages import naming
from tests.support.pruning import (
    cut,
    digits,
    mlpnet,
    points,
    same,
    snapshot,
    unseen_digits,
)
from tests.support.recovering import normalised

DATA = cut(points(200), 50)
METHODS = ("auto", "magnitude", "chita-bso", "obd", "lamp")


@cache
def _trained() -> Any:
    model = normalised().eval()
    fit(model, points(200))
    return model


def trained() -> Any:
    """A network with batch norm that has learned the samples."""
    return copy.deepcopy(_trained())


def prune(model: nn.Module, batches: Any = DATA, **keywords: Any) -> PruneResult:
    defaults: dict[str, Any] = {"sparsity": 0.8, "recover": True, "budget": "80 steps", "stages": 3}
    if keywords.get("method", "auto") in ("chita-bso", "obd"):
        defaults["batch"] = 4
    return chita.prune(model, batches, progress=False, **{**defaults, **keywords})


@pytest.mark.parametrize("method", METHODS)
def test_the_sparsity_is_met_to_the_weight(method: str) -> None:
    model = trained()
    result = prune(model, method=method)
    kept = kept_weights(72, 0.8)
    assert result.model is model and result.nonzeros == kept
    assert int(Weights(model).vector().count_nonzero()) == kept
    for name, mask in result.masks.items():
        assert torch.equal(dict(model.named_parameters())[name] != 0, mask)
    *first, last = (row.recovery_steps for row in result.stages)
    assert first == [26, 26] and last in (28, 36)  # the last training may be repeated for 8 steps
    assert [row.sparsity for row in result.stages][-1] == 0.8
    if method != "chita-bso":  # whose solution may leave nothing to gain
        assert any(row.recovered for row in result.stages)


@pytest.mark.parametrize("method", METHODS)
def test_stages_record_what_each_part_gains(method: str) -> None:
    result = prune(trained(), method=method)
    for row in result.stages:
        assert row.solved_loss is not None and math.isfinite(row.solved_loss)
        assert row.choice_loss is not None and row.choice_loss <= row.solved_loss
        assert row.recovered == (row.choice_loss < row.solved_loss)
        assert (row.mask_loss is not None) == (method == "auto")
        if row.step == 0 and method == "auto":
            assert row.mask_loss == row.solved_loss
        assert row.recovery_seconds > 0
        stored = json.loads(json.dumps(row.to_dict()))
        assert StageRow.from_dict(stored) == row
    assert result.seconds.recovery == pytest.approx(
        sum(row.recovery_seconds for row in result.stages)
    )


def test_the_first_stage_uses_the_gradients_of_the_comparison(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    computed, local_model = list[torch.Tensor](), Setup.local_model

    def counted(setup: Setup, w0: torch.Tensor) -> Any:
        computed.append(w0)
        return local_model(setup, w0)

    monkeypatch.setattr(Setup, "local_model", counted)
    result = prune(trained(), method="auto")
    assert result.stages[0].candidates  # the comparison took place
    assert len(computed) == len(result.stages)


def test_the_result_names_what_was_trained_on() -> None:
    """A network that is not trained has nothing to teach, unlike the labels."""
    labels = prune(normalised(), cut(points(2000), 100), stages=4, budget="400 steps")
    assert labels.trained_on == labels.to_dict()["trained_on"] == "loss"
    dense = prune(trained(), stages=4, loss="distill")
    assert dense.trained_on == "distill"
    assert prune(trained(), recover=False, budget="balanced").trained_on is None


def test_recovery_gets_most_of_the_accuracy_back() -> None:
    """On images that it has not seen."""
    data, test = digits(1000), unseen_digits()[0]
    options: dict[str, Any] = {"sparsity": 0.97, "stages": None, "budget": "600 steps"}
    alone = chita.prune(mlpnet(), data, sparsity=0.97, method="magnitude", progress=False)
    found = {method: prune(mlpnet(), data, method=method, **options) for method in METHODS[:2]}
    for result in found.values():
        assert result.nonzeros == kept_weights(result.weights, 0.97)
        assert accuracy_of(result.model, test) > max(90, accuracy_of(alone.model, test) + 10)


def test_a_pattern_is_kept_in_every_group() -> None:
    model: Any = mlpnet()
    result = prune(model, digits(500), sparsity="2:4", stages=None, budget="40 steps")
    assert result.sparsity == 0.5
    for name, mask in result.masks.items():
        weight = dict(model.named_parameters())[name]
        assert torch.equal(weight != 0, mask)
        assert bool((mask.view(-1, 4).sum(1) == 2).all())


@pytest.mark.parametrize("method", ["auto", "magnitude", "lamp"])
def test_steps_give_the_same_bits_twice(method: str) -> None:
    found = []
    for seed in (0, 0, 1):
        model = trained()
        torch.rand(5)
        state = torch.get_rng_state()
        prune(model, method=method, seed=seed)
        assert torch.equal(torch.get_rng_state(), state)
        found.append(snapshot(model))
    assert same(found[0], found[1])
    assert not same(found[0], found[2])


def test_auto_recovers_by_default_and_other_methods_do_not() -> None:
    assert prune(trained(), recover=None).stages[-1].recovery_steps > 0
    model = trained()
    bias = model[0].bias.detach().clone()
    chita.prune(model, DATA, sparsity=0.5, method="magnitude", progress=False)
    assert torch.equal(model[0].bias, bias)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "magnitude", "recover": None}, naming("budget", "80 steps", "recover=True")),
        ({"recover": False}, naming("budget", "80 steps", "recover=True")),
        ({"recover": "yes"}, naming("recover", "yes")),
        *(
            ({"budget": bad}, naming("budget", bad))
            for bad in (0, -1, math.nan, "quick", "0 steps", True)
        ),
        ({"budget": 1e-4}, naming("budget", 1e-4, "recover=False")),
    ],
)
def test_options_that_are_refused(options: dict[str, Any], message: str) -> None:
    model = trained()
    before = snapshot(model)
    with pytest.raises(ChitaError, match=message):
        prune(model, **options)
    assert same(snapshot(model), before)


@pytest.mark.parametrize("method", ["auto", "magnitude"])
def test_an_interrupted_run_goes_on_to_the_same_bits(method: str, tmp_path: Path) -> None:
    """Interrupted at any moment, it leaves the network of the last finished stage."""
    model, moments = trained(), 0

    def count(*_: Any) -> None:
        nonlocal moments
        moments += 1

    model.register_forward_pre_hook(count)  # copies of the model, such as the teacher, count too
    whole = prune(model, method=method)
    expected = snapshot(model)
    done = []
    for number, share in enumerate((0.02, 0.4, 0.6, 0.8, 0.95)):
        folder, model = tmp_path / str(number), trained()
        interrupt_at(model, int(moments * share))
        with pytest.raises(KeyboardInterrupt):
            prune(model, method=method, checkpoints=folder)
        done.append(finished_stages(folder, model))
        model = trained()
        result = prune(model, method=method, checkpoints=folder, resume=True)
        assert same(snapshot(model), expected), share
        assert [row.choice_loss for row in result.stages] == [
            row.choice_loss for row in whole.stages
        ]
    assert done[0] == 0 and done[-1] == 2 and done == sorted(done)


def finished_stages(folder: Path, model: nn.Module) -> int:
    """The stages in a folder; the model has the tensors of the last one, or those of before."""
    if not (folder / STAGE_FILE).exists():
        assert same(snapshot(model), snapshot(trained()))
        return 0
    finished = StageFile.read(folder / STAGE_FILE).finished
    assert torch.equal(Weights(model).vector(), finished.weights)
    found = snapshot(model)
    assert "1.running_mean" in finished.others
    assert all(torch.equal(found[name], value) for name, value in finished.others.items())
    return len(finished.rows)


def test_the_interruption_of_a_stage_restores_batch_norm_too() -> None:
    model = trained()
    before = snapshot(model)
    interrupt_at(model, 260)
    with pytest.raises(KeyboardInterrupt):
        prune(model, stages=1, budget="4000 steps")
    assert same(snapshot(model), before)
    assert not any(module.training for module in model.modules())


def test_a_floor_holds_and_rejected_stages_restore_everything() -> None:
    model = trained()
    inputs, targets = points(600, seed=3)
    result = prune(
        model,
        cut(points(600), 50),
        sparsity=None,
        min_accuracy=70.0,
        stages=None,
        budget="200 steps",
    )
    accepted = [row for row in result.stages if row.accepted]
    rejected = [row for row in result.stages if not row.accepted]
    assert accepted and rejected
    assert result.nonzeros == kept_weights(72, max(row.sparsity for row in accepted))
    assert all(row.accuracy is not None and row.accuracy >= 70 for row in accepted)
    assert accuracy_of(model, (inputs, targets)) > 60


def test_a_floor_that_no_stage_meets_leaves_the_network() -> None:
    model = trained()
    before = snapshot(model)
    prune(model, sparsity=0.95, max_loss_increase=1e-9, stages=None)
    found = snapshot(model)
    assert found.keys() == before.keys()
    assert all(torch.equal(found[name], before[name]) for name in before if "bias" not in name)
