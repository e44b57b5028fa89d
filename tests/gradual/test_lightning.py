"""The callback of Lightning's Trainer, in the real Trainer."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import Optimizer
from torch.utils.data import DataLoader

import chita
from chita.errors import ChitaError
from chita.gradual import PruningSchedule
from chita.model.weights import Weights
from tests.gradual.loops import CALIBRATION, OPTIMIZERS, assert_sparse, images, network
from tests.support.messages import naming
from tests.support.pruning import same, snapshot

pl = pytest.importorskip("lightning.pytorch", reason="needs lightning: chita[lightning]")
from chita.gradual.lightning import GradualPruning, KeepMasks  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # Lightning's advice on workers and loggers

SCHEDULE = PruningSchedule((0, 2, 3), (0.5, 0.8, 0.9))


class Classifier(pl.LightningModule):  # type: ignore[misc,name-defined]
    """As people write it: the network inside, the loss in training_step."""

    def __init__(self, optimizers: int = 1) -> None:
        super().__init__()
        self.network = network()
        self.network.get_submodule("drop").p = 0.0
        self.optimizer_count = optimizers
        self.automatic_optimization = optimizers == 1

    def forward(self, x: Tensor) -> Any:
        return self.network(x)

    def training_step(self, batch: list[Tensor]) -> Tensor:
        x, t = batch
        return functional.cross_entropy(self(x), t)

    def configure_optimizers(self) -> list[Optimizer]:
        return [OPTIMIZERS["adamw"](self.parameters()) for _ in range(self.optimizer_count)]


class Watch(pl.Callback):  # type: ignore[misc,name-defined]
    """Notes how many weights are zero after each batch."""

    def __init__(self) -> None:
        self.zeros: list[int] = []

    def on_train_batch_end(self, _: Any, module: nn.Module, *__: Any) -> None:
        self.zeros.append(int((Weights(module).vector() == 0).sum()))


def fit(
    folder: Path,
    callback: GradualPruning,
    *,
    epochs: int,
    resume: str | None = None,
    **more: Any,
) -> tuple[Classifier, Watch, Any]:
    model, watch = Classifier(), Watch()
    trainer = pl.Trainer(
        accelerator="cpu",
        callbacks=[callback, watch],
        default_root_dir=folder,
        max_epochs=epochs,
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
        logger=False,
        **more,
    )
    trainer.fit(model, DataLoader(images(), batch_size=None), ckpt_path=resume)
    return model, watch, trainer


def pruning(**more: Any) -> GradualPruning:
    return GradualPruning(SCHEDULE, images(), **CALIBRATION, **more)


def test_every_batch_sees_the_sparsity_of_the_schedule(tmp_path: Path) -> None:
    callback = pruning()
    model, watch, _ = fit(tmp_path, callback, epochs=5)
    pruned = [306 - 153] * 12 + [306 - 61] * 6 + [306 - 30] * 12
    assert watch.zeros == pruned
    assert_sparse(callback.pruner, model, 0.9)
    assert list(model.state_dict()) == list(Classifier().state_dict())


def test_a_schedule_of_steps_with_accumulated_gradients(tmp_path: Path) -> None:
    callback = pruning(unit="step")
    model, watch, _ = fit(tmp_path, callback, epochs=2, accumulate_grad_batches=3)
    assert watch.zeros == [306 - 153] * 6 + [306 - 61] * 3 + [306 - 30] * 3
    assert_sparse(callback.pruner, model, 0.9)


def test_mixed_precision(tmp_path: Path) -> None:
    callback = pruning(method="magnitude")
    model, watch, _ = fit(tmp_path, callback, epochs=4, precision="bf16-mixed")
    assert watch.zeros[-1] == 306 - 30
    assert_sparse(callback.pruner, model, 0.9)


@pytest.mark.parametrize("cut_at", [1, 2, 3])
def test_a_checkpoint_goes_on_in_the_same_way(cut_at: int, tmp_path: Path) -> None:
    whole, _, _ = fit(tmp_path, pruning(), epochs=4)
    _, _, trainer = fit(tmp_path, pruning(), epochs=cut_at)
    file = str(tmp_path / "cut.ckpt")
    trainer.save_checkpoint(file)
    callback = pruning()
    resumed, watch, _ = fit(tmp_path, callback, epochs=4, resume=file)
    assert len(watch.zeros) == 6 * (4 - cut_at)
    assert same(snapshot(resumed), snapshot(whole))
    assert_sparse(callback.pruner, resumed, 0.9)


def test_what_does_not_fit_is_told(tmp_path: Path) -> None:
    with pytest.raises(ChitaError, match=naming("unit", "epoch", "step", "batch")):
        pruning(unit="batch")
    trainer = pl.Trainer(
        accelerator="cpu", callbacks=[pruning()], logger=False, enable_checkpointing=False
    )
    with pytest.raises(ChitaError, match=naming("optimizer", 2)):
        trainer.fit(Classifier(optimizers=2), DataLoader(images(), batch_size=None))


def test_the_extra_is_named_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "chita.gradual.lightning")
    monkeypatch.setitem(sys.modules, "lightning.pytorch", None)
    with pytest.raises(ChitaError, match=naming("pip install 'chita[lightning]'")):
        importlib.import_module("chita.gradual.lightning")


class Interrupted(pl.Callback):  # type: ignore[misc,name-defined]
    def on_train_batch_end(self, *_: Any) -> None:
        raise RuntimeError("interrupted")


def pruned_classifier() -> Classifier:
    model = Classifier()
    chita.prune(model, [], sparsity=0.9, method="magnitude", progress=False)
    return model


def trainer_with(*callbacks: Any, **more: Any) -> Any:
    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "logger": False}
    return pl.Trainer(
        accelerator="cpu", callbacks=[*callbacks], enable_checkpointing=False, **quiet, **more
    )


def test_masks_are_kept_and_a_checkpoint_goes_on(tmp_path: Path) -> None:
    model, watch = pruned_classifier(), Watch()
    masks = chita.masks_of(model)
    trainer = trainer_with(KeepMasks(), watch, max_epochs=2)
    trainer.fit(model, DataLoader(images(), batch_size=None))
    assert watch.zeros == [306 - 30] * 12
    assert same(chita.masks_of(model), masks)
    trainer.save_checkpoint(tmp_path / "two.ckpt")
    other = Classifier()  # dense; its zeros are those of the checkpoint
    longer = trainer_with(KeepMasks(), max_epochs=3)
    longer.fit(other, DataLoader(images(), batch_size=None), ckpt_path=tmp_path / "two.ckpt")
    assert same(chita.masks_of(other), masks) and not same(snapshot(other), snapshot(model))
    assert not longer.optimizers[0]._optimizer_step_post_hooks


def test_masks_that_are_given_and_an_error() -> None:
    model = Classifier()
    masks = chita.masks_of(pruned_classifier())
    trainer = trainer_with(KeepMasks(masks), Interrupted(), max_epochs=2)
    with pytest.raises(RuntimeError, match="interrupted"):
        trainer.fit(model, DataLoader(images(), batch_size=None))
    assert same(chita.masks_of(model), masks)
    assert not trainer.optimizers[0]._optimizer_step_post_hooks
    with pytest.raises(ChitaError, match=naming("model", "zeros", "masks")):
        trainer_with(KeepMasks(), max_epochs=1).fit(
            Classifier(), DataLoader(images(), batch_size=None)
        )


def test_an_error_releases_the_pruner() -> None:
    trainer = trainer_with(pruning(), Interrupted(), max_epochs=2)
    with pytest.raises(RuntimeError, match="interrupted"):
        trainer.fit(Classifier(), DataLoader(images(), batch_size=None))
    assert not trainer.optimizers[0]._optimizer_step_post_hooks


def test_the_optimizer_of_a_lightning_module_is_one(tmp_path: Path) -> None:
    """`self.optimizers()` gives a wrapper, as users of manual optimization know it."""

    class Manual(Classifier):
        def __init__(self) -> None:
            super().__init__()
            self.automatic_optimization = False

        def training_step(self, batch: list[Tensor]) -> None:
            optimizer: Any = self.optimizers()
            with chita.keep_masks(self, optimizer):
                optimizer.zero_grad()
                self.manual_backward(super().training_step(batch))
                optimizer.step()

    model, watch = Manual(), Watch()
    chita.prune(model, [], sparsity=0.9, method="magnitude", progress=False)
    trainer_with(watch, max_epochs=1).fit(model, DataLoader(images(), batch_size=None))
    assert watch.zeros == [306 - 30] * 6
