"""The callback of the Hugging Face Trainer, in the real Trainer."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader

import chita
from chita.errors import ChitaError
from chita.gradual import PruningSchedule
from chita.model.weights import Weights
from chita.pruning.config import kept_weights
from tests.support.messages import naming
from tests.support.pruning import same, seeded, snapshot

transformers = pytest.importorskip("transformers", reason="needs transformers")
pytest.importorskip("accelerate", reason="the Trainer of transformers needs accelerate")
from chita.gradual.huggingface import (  # noqa: E402
    STATE_FILE,
    GradualPruningCallback,
    KeepMasksCallback,
)

pytestmark = pytest.mark.slow

SCHEDULE = PruningSchedule((0, 2, 3), (0.5, 0.8, 0.9))
STEPS = 6  # in an epoch


def classifier() -> Any:
    """A Bert of one layer, without dropout."""
    config = transformers.BertConfig(
        vocab_size=20,
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=12,
        max_position_embeddings=8,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        num_labels=3,
    )
    return seeded(lambda: transformers.BertForSequenceClassification(config))


def sentences() -> list[dict[str, Tensor]]:
    """48 of six words; the label is the first one modulo 3."""
    draw = torch.Generator().manual_seed(0)
    words = torch.randint(20, (48, 6), generator=draw)
    return [{"input_ids": row, "labels": row[0] % 3} for row in words]


def pruning(**more: Any) -> GradualPruningCallback:
    batches = DataLoader(sentences(), 8, collate_fn=transformers.default_data_collator)
    defaults = {"samples": 8, "batch": 4, "ridge": 0.01}
    return GradualPruningCallback(SCHEDULE, batches, **{**defaults, **more})


class Watch(transformers.TrainerCallback):  # type: ignore[misc,name-defined]
    """Notes how many weights are zero after each step."""

    def __init__(self) -> None:
        self.zeros: list[int] = []

    def on_step_end(self, *_: Any, model: Any, **__: Any) -> None:
        self.zeros.append(int((Weights(model).vector() == 0).sum()))


def train(
    folder: Path,
    callback: Any,
    *,
    model: Any = None,
    epochs: int = 4,
    resume: str | None = None,
    **more: Any,
) -> tuple[Any, Watch]:
    watch = Watch()
    arguments = {"per_device_train_batch_size": 8, "save_strategy": "no", **more}
    trainer = transformers.Trainer(
        model=classifier() if model is None else model,
        args=transformers.TrainingArguments(
            output_dir=str(folder),
            num_train_epochs=epochs,
            learning_rate=1e-2,
            weight_decay=0.1,
            use_cpu=True,
            report_to=[],
            disable_tqdm=True,
            **arguments,
        ),
        train_dataset=sentences(),
        callbacks=[callback, watch],
    )
    trainer.train(resume_from_checkpoint=resume)
    return trainer.model, watch


def zeros(sparsity: float) -> int:
    p = Weights(classifier()).size
    return p - kept_weights(p, sparsity)


def test_every_step_sees_the_sparsity_of_the_schedule(tmp_path: Path) -> None:
    callback = pruning()
    model, watch = train(tmp_path, callback)
    assert watch.zeros == [zeros(0.5)] * 12 + [zeros(0.8)] * 6 + [zeros(0.9)] * 6
    masks = callback.pruner.masks
    assert all(torch.equal(model.get_parameter(n) != 0, mask) for n, mask in masks.items())
    assert list(model.state_dict()) == list(classifier().state_dict())


def test_a_schedule_of_steps_with_accumulated_gradients(tmp_path: Path) -> None:
    _, watch = train(tmp_path, pruning(unit="step"), epochs=2, gradient_accumulation_steps=2)
    assert watch.zeros == [zeros(0.5)] * 2 + [zeros(0.8)] + [zeros(0.9)] * 3


def test_mixed_precision(tmp_path: Path) -> None:
    _, watch = train(tmp_path, pruning(), bf16=True)
    assert watch.zeros[-1] == zeros(0.9)


@pytest.mark.parametrize("cut_at", [STEPS, 2 * STEPS, 2 * STEPS + 4])
def test_a_checkpoint_goes_on_in_the_same_way(cut_at: int, tmp_path: Path) -> None:
    saved = {"save_strategy": "steps", "save_steps": cut_at}
    whole, watch = train(tmp_path, pruning(), **saved)
    checkpoint = tmp_path / f"checkpoint-{cut_at}"
    resumed, rest = train(tmp_path, pruning(), resume=str(checkpoint), **saved)
    assert rest.zeros == watch.zeros[cut_at:]
    assert same(snapshot(resumed), snapshot(whole))
    (checkpoint / STATE_FILE).unlink()
    with pytest.raises(
        ChitaError, match=naming(f"step {cut_at}", "gradual_pruner.pt", "output_dir")
    ):
        train(tmp_path, pruning(), resume=str(checkpoint), **saved)


def test_a_new_training_releases_the_pruner_of_one_that_failed() -> None:
    model, callback, state = classifier(), pruning(), transformers.TrainerState()
    optimizer: Any = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):  # without on_train_end, as after an error
        callback.on_train_begin(None, state, None, model=model, optimizer=optimizer)
        assert len(optimizer._optimizer_step_post_hooks) == 1


def test_a_unit_that_is_none_is_told() -> None:
    with pytest.raises(ChitaError, match=naming("unit", "epoch", "step", "steps")):
        pruning(unit="steps")


def test_the_extra_is_named_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "chita.gradual.huggingface")
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ChitaError, match=naming("pip install 'chita[transformers]'")):
        importlib.import_module("chita.gradual.huggingface")


def pruned_classifier() -> Any:
    model = classifier()
    chita.prune(model, [], sparsity=0.9, method="magnitude", progress=False)
    return model


def test_masks_are_kept_and_a_checkpoint_goes_on(tmp_path: Path) -> None:
    masks = chita.masks_of(pruned_classifier())
    saved = {"save_strategy": "steps", "save_steps": STEPS}
    model, watch = train(
        tmp_path, KeepMasksCallback(), model=pruned_classifier(), epochs=2, **saved
    )
    assert watch.zeros == [zeros(0.9)] * 12
    assert same(chita.masks_of(model), masks)
    checkpoint = str(tmp_path / f"checkpoint-{STEPS}")
    resumed, rest = train(  # of a dense model: the zeros are those of the checkpoint
        tmp_path, KeepMasksCallback(), epochs=2, resume=checkpoint, **saved
    )
    assert rest.zeros == [zeros(0.9)] * 6
    assert same(snapshot(resumed), snapshot(model))
    loaded = transformers.BertForSequenceClassification.from_pretrained(checkpoint)
    assert same(chita.masks_of(loaded), masks)


def test_given_masks_and_mixed_precision(tmp_path: Path) -> None:
    masks = chita.masks_of(pruned_classifier())
    model, watch = train(tmp_path, KeepMasksCallback(masks), bf16=True, epochs=1)
    assert watch.zeros == [zeros(0.9)] * 6 and same(chita.masks_of(model), masks)
    with pytest.raises(ChitaError, match=naming("model", "zeros", "masks")):
        train(tmp_path, KeepMasksCallback(), epochs=1)
