import json
import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from chita import zoo
from chita.model.batch_norm import reestimate_batch_norm
from chita.model.distill import DenseNetwork, distilled
from chita.model.samples.batch import Batch
from chita.model.weights import Weights
from chita.pruning.calibration import Calibration
from chita.pruning.held_out import PartLosses
from chita.pruning.repair import BATCH_NORM, BIASES, DenseMeans, dense_means, repair
from chita.pruning.result_rows import RepairRow
from tests.support.messages import says
from tests.support.part_losses import losses


def samples(count: int, seed: int) -> list[Batch]:
    """Images of a mean and scale that no fresh network expects, in batches of 32."""
    generator = torch.Generator().manual_seed(seed)
    images = 3 + 2 * torch.randn(count, 3, 8, 8, generator=generator)
    targets = torch.randint(0, 5, (count,), generator=generator)
    return list(Batch(((images,), targets), count).split(32))


def network() -> nn.Sequential:
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Dropout(0.5),
        nn.Conv2d(8, 8, 3),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 5),
    )
    generator = torch.Generator().manual_seed(0)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.4, generator=generator)
    reestimate_batch_norm(model, samples(128, seed=0))
    return model


@torch.no_grad()
def pruned_network() -> tuple[nn.Sequential, DenseMeans, Callable[[], PartLosses]]:
    """A pruned network whose loss is how far its outputs are from those of the dense one."""
    model = network()
    weights = Weights(model)
    dense = DenseMeans(model, weights, samples(128, seed=1))
    held_out = torch.cat([batch.content[0][0] for batch in samples(64, seed=2)])
    targets = model.eval()(held_out)
    model.train()
    for weight in weights:
        weight.parameter.view(-1)[::2] = 0

    @torch.no_grad()
    def losses_now() -> PartLosses:
        modes = [module.training for module in model.modules()]
        value = float((model.eval()(held_out) - targets).square().mean())
        for module, mode in zip(model.modules(), modes, strict=True):
            module.training = mode
        return losses(value)

    return model, dense, losses_now


def always() -> bool:
    return True


def copy_of(model: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def test_both_repairs_are_kept_where_pruning_has_shifted_the_statistics() -> None:
    model, dense, loss = pruned_network()
    state = torch.get_rng_state()
    masks = [weight.parameter != 0 for weight in Weights(model)]
    start = loss().mean
    rows = repair(model, dense, loss, always)
    assert [(row.repair, row.kept) for row in rows] == [(BATCH_NORM, True), (BIASES, True)]
    assert rows[0].loss_before == start > rows[0].loss_after == rows[1].loss_before
    assert rows[1].loss_after == loss().mean < 0.5 * start
    assert all(
        torch.equal(mask, weight.parameter != 0)
        for mask, weight in zip(masks, Weights(model), strict=True)
    )
    assert all(module.training for module in model.modules())
    assert torch.equal(torch.get_rng_state(), state)  # dropout was not drawn
    # What batch norm estimates is known: the statistics of the pruned convolution's outputs.
    with torch.no_grad():
        outputs = [model[0](batch.content[0][0]) for batch in dense.batches]
    truth = torch.stack([z.mean(dim=(0, 2, 3)) for z in outputs]).mean(0)
    assert torch.allclose(model[1].running_mean, truth, atol=1e-5)


@pytest.mark.parametrize("after", [1.0, 2.0, math.nan, math.inf])
def test_a_rejected_repair_leaves_every_bit(after: float) -> None:
    model, dense, _ = pruned_network()
    before, told = copy_of(model), iter([1.0, after, after])
    rows = repair(model, dense, lambda: losses(next(told)), always)
    assert [row.kept for row in rows] == [False, False]
    assert all(row.loss_before == 1.0 for row in rows)
    found = model.state_dict()
    assert all(torch.equal(tensor, found[name]) for name, tensor in before.items())


def test_one_may_be_kept_without_the_other() -> None:
    model, dense, _ = pruned_network()
    before, told = copy_of(model), iter([2.0, 3.0, 1.0])
    rows = repair(model, dense, lambda: losses(next(told)), always)
    assert rows == [RepairRow(BATCH_NORM, 2.0, 3.0, False), RepairRow(BIASES, 2.0, 1.0, True)]
    changed = {
        name for name, tensor in model.state_dict().items() if not torch.equal(tensor, before[name])
    }
    assert changed == {"4.bias", "8.bias"}  # batch norm's own bias is none of these


@pytest.mark.parametrize("before", [math.nan, math.inf])
def test_after_a_loss_that_is_not_finite_no_repair_is_kept(before: float) -> None:
    """It cannot fall by two standard errors, as is promised for every repair that is kept."""
    model, dense, _ = pruned_network()
    start, told = copy_of(model), iter([before, 1.0, 2.0])
    rows = repair(model, dense, lambda: losses(next(told)), always)
    assert [row.kept for row in rows] == [False, False]
    found = model.state_dict()
    assert all(torch.equal(tensor, found[name]) for name, tensor in start.items())


def test_a_floor_that_breaks_undoes_the_repair() -> None:
    model, dense, _ = pruned_network()
    before, told, answers = copy_of(model), iter([3.0, 2.0, 1.0]), iter([False, True])
    rows = repair(model, dense, lambda: losses(next(told)), lambda: next(answers))
    assert rows == [RepairRow(BATCH_NORM, 3.0, 2.0, False), RepairRow(BIASES, 3.0, 1.0, True)]
    assert torch.equal(model.state_dict()["1.running_mean"], before["1.running_mean"])


def test_a_repair_that_cannot_be_done_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    """Batch norm takes no single value for a channel; the biases are repaired all the same."""
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
    one = Batch(((torch.ones(1, 4),), torch.zeros(1, dtype=torch.int64)), 1)
    dense = DenseMeans(model, Weights(model), [one])
    before, told = copy_of(model), iter([2.0, 1.0])
    rows = repair(model, dense, lambda: losses(next(told)), always)
    assert rows == [RepairRow(BIASES, 2.0, 1.0, True)]
    assert says(caplog.text, "batch norm", "(1, 4)")
    assert torch.equal(model.state_dict()["1.running_var"], before["1.running_var"])


def test_rows_are_ready_for_json() -> None:
    row = RepairRow(BIASES, math.inf, 1.0, True)
    assert json.loads(json.dumps(row.to_dict(), allow_nan=False)) == {
        "repair": "biases",
        "loss_before": None,
        "loss_after": 1.0,
        "kept": True,
    }
    assert RepairRow(BIASES, 1.0, math.nan, False).to_dict()["loss_after"] is None


@pytest.mark.parametrize("fails_at", [1, 2, 3])
def test_an_interruption_undoes_the_repair_it_meets(fails_at: int) -> None:
    model, dense, _ = pruned_network()
    before, calls = copy_of(model), []

    def loss() -> PartLosses:
        calls.append(1)
        if len(calls) == fails_at:
            raise KeyboardInterrupt
        return losses(1.0)

    with pytest.raises(KeyboardInterrupt):
        repair(model, dense, loss, always)
    assert all(torch.equal(t, before[name]) for name, t in model.state_dict().items())


def test_a_pruned_copy_is_repaired_as_the_model_itself() -> None:
    model, dense, loss = pruned_network()
    other, _, other_loss = pruned_network()
    assert repair(other, dense, other_loss, always) == repair(model, dense, loss, always)
    found = other.state_dict()
    assert all(torch.equal(tensor, found[name]) for name, tensor in model.state_dict().items())


def test_a_network_with_nothing_to_repair_has_no_rows() -> None:
    model = zoo.get("mlpnet").build()
    dense = DenseMeans(model, Weights(model), [])
    assert repair(model, dense, lambda: pytest.fail("no loss is needed"), always) == []


def test_the_means_need_no_outputs_of_a_copy_of_the_dense_network(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = network()
    inputs = [batch.content[0][0] for batch in samples(128, seed=1)]
    stream, _ = distilled(model, inputs, "distill", 0)
    calibration = Calibration(stream, rows=6, batch=16, held_out=[], measured=[], at_once=40)
    monkeypatch.setattr(DenseNetwork, "label", lambda *_: pytest.fail("the means use no targets"))
    dense = dense_means(model, Weights(model), calibration)
    assert [batch.size for batch in dense.batches] == [32, 32, 32]
    assert stream.place == (1, 96)
    assert torch.equal(dense.batches[0].content[0][0], inputs[0])
