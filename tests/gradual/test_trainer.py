import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

import chita
from chita.data import Batches
from chita.data.preprocessing import pad_crop_flip
from chita.errors import ChitaError
from chita.gradual.epoch_batches import Feed
from chita.gradual.epoch_file import EpochFile
from chita.gradual.history import History
from chita.gradual.registry import METHODS
from chita.model.accuracy import accuracy
from chita.model.seeds import drawing, seed_of
from chita.model.weights import Weights
from chita.pruning.config import kept_weights
from tests.gradual.small import RECIPE, linear_network, same, small_network, small_splits, train
from tests.support.gloo import on_ranks
from tests.support.messages import naming

pytestmark = pytest.mark.slow

CPU = torch.device("cpu")
STEPS = 4  # in an epoch: 220 images in batches of 50


def test_it_is_a_plain_loop_with_pruning_steps() -> None:
    """The same written out: cosine, SGD, magnitude pruning, and a mask after each step."""
    truth, splits = small_network(), small_splits()
    feed = Feed(splits.train, 50, augment=pad_crop_flip, seed=3, device=CPU)
    optimizer = torch.optim.SGD(truth.parameters(), lr=1, momentum=0.9, weight_decay=1e-4)
    (mean,), (std,) = splits.train.mean, splits.train.std
    truth.train()
    for epoch in range(5):
        if epoch < 3:  # the pruning steps: 0.8 - 0.3 (1 - t / 2)^3
            sparsity = 0.8 - 0.3 * (1 - epoch / 2) ** 3
            result = chita.prune(
                truth, [], sparsity=sparsity, method="magnitude", stages=1, progress=False
            )
            for name, mask in result.masks.items():
                state = optimizer.state.get(truth.get_parameter(name), {})
                if "momentum_buffer" in state:
                    state["momentum_buffer"].mul_(mask)
        start, end = (epoch, epoch + 1) if epoch < 2 else (2, 5)
        with drawing(seed_of(3, epoch, 0), CPU):
            for step, (images, labels) in enumerate(feed.epoch(epoch)):
                done = (epoch + step / STEPS - start) / (end - start)
                rate = 1e-5 + 0.5 * (0.05 - 1e-5) * (1 + math.cos(math.pi * done))
                optimizer.param_groups[0]["lr"] = rate
                optimizer.zero_grad()
                outputs = truth((images / 255 - mean) / std)
                F.cross_entropy(outputs, labels, label_smoothing=0.1).backward()
                optimizer.step()
                for name, mask in result.masks.items():
                    parameter = truth.get_parameter(name)
                    parameter.data.mul_(mask)
                    optimizer.state[parameter]["momentum_buffer"].mul_(mask)
    model = small_network()
    history = train(model, method="global-magnitude", seed=3)
    for name, tensor in truth.state_dict().items():
        assert torch.allclose(model.state_dict()[name], tensor, rtol=1e-4, atol=1e-6), name
    assert history.accuracy == accuracy(truth, Batches(splits.test, 100))
    assert [row.pruned for row in history.rows] == [True, True, True, False, False]
    rates = [(row.learning_rate, row.last_learning_rate) for row in history.rows]
    assert rates[2][0] == pytest.approx(0.05)
    assert rates[4][1] == pytest.approx(rate)


@pytest.mark.parametrize("method", METHODS)
def test_any_method_is_exact_and_goes_on_to_the_same_bits(method: str, tmp_path: Path) -> None:
    """Interrupted in epoch 2, with a pruning step behind it and one ahead, or in the last one."""
    model = small_network()
    history = train(model, method=method)
    weights = Weights(model)
    assert history.nonzeros == int(weights.vector().count_nonzero())
    assert abs(history.nonzeros - kept_weights(weights.size, 0.8)) <= 1
    resumed = small_network()
    for broken_off_in in (1, 4):
        with pytest.raises(KeyboardInterrupt):
            train(
                resumed,
                method=method,
                out=tmp_path,
                resume=broken_off_in > 1,
                progress=interrupting(STEPS * broken_off_in + 2),
            )
        assert EpochFile.done(tmp_path) == (broken_off_in, 5)
        resumed = small_network()
    again = train(resumed, method=method, out=str(tmp_path), resume=True)
    assert same(model, resumed)
    assert without_time(again) == without_time(history)
    done = small_network()  # once more, with nothing left to do but the last things
    assert without_time(train(done, method=method, out=tmp_path, resume=True)) == without_time(
        history
    )
    assert same(model, done)


def interrupting(step: int) -> Any:
    def progress(done: int, total: int) -> None:
        assert total == 5 * STEPS
        if done == step:
            raise KeyboardInterrupt

    return progress


def without_time(history: History) -> History:
    return replace(history, rows=tuple(replace(row, seconds=0.0) for row in history.rows))


@pytest.mark.parametrize("method", [name for name in METHODS if METHODS[name].from_scratch])
def test_from_scratch_means_fresh_weights_and_one_cosine_to_zero(method: str) -> None:
    one, other = small_network(0), small_network(1)
    history = train(one, method=method)
    train(other, method=method)
    assert same(one, other)
    rates = [row.learning_rate for row in history.rows]
    expected = [0.025 * (1 + math.cos(math.pi * epoch / 5)) for epoch in range(5)]
    assert rates == pytest.approx(expected)
    assert not any(row.pruned for row in history.rows)


def test_accuracy_and_sparsity_are_those_of_the_effective_weights() -> None:
    """DNW keeps all weights and shows the network a fifth of them."""
    model = small_network()
    history = train(model, method="dnw")
    assert history.rows[-1].accuracy == history.accuracy
    assert [row.sparsity for row in history.rows] == pytest.approx([0.8] * 5, abs=1e-3)


def test_the_seed_decides() -> None:
    one, other = small_network(), small_network()
    train(one, seed=0)
    train(other, seed=1)
    assert not same(one, other)


def test_the_callers_generator_modes_and_convolutions_are_left_as_they_were() -> None:
    model = small_network()
    model.eval()
    model[1].train()
    before = torch.get_rng_state(), torch.backends.cudnn.benchmark
    train(model)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert torch.backends.cudnn.benchmark == before[1]
    assert [module.training for module in model] == [False, True] + [False] * 6


def test_another_configuration_is_not_resumed(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        train(small_network(), out=tmp_path, progress=interrupting(STEPS + 1))
    for changes, message in (
        ({"sparsity": 0.7}, naming("sparsity", 0.8, 0.7)),
        ({"seed": 1}, naming("seed", 0, 1)),
        ({"recipe": replace(RECIPE, weight_decay=0.1)}, naming("weight_decay", 0.0001, 0.1)),
        ({"recipe": replace(RECIPE, methods={})}, naming("methods", "samples", {})),
        ({"data": small_splits(219)}, naming("training images", 220, 219)),
        ({"include": "7.weight"}, naming("include", None, "7.weight")),
    ):
        with pytest.raises(ChitaError, match=message):
            train(small_network(), out=tmp_path, resume=True, **changes)
    with pytest.raises(ChitaError, match=naming("epoch.pt", "model")):
        train(small_network(1), out=tmp_path, resume=True)
    with pytest.raises(ChitaError, match=naming("epoch 1", 5, re.compile("resume"), "epoch.pt")):
        train(small_network(), out=tmp_path)
    # Settings of methods that do not run change nothing.
    others = {**RECIPE.methods, "m-fac": {"samples": 1}}
    train(small_network(), out=tmp_path, resume=True, recipe=replace(RECIPE, methods=others))
    assert EpochFile.done(tmp_path) == (5, 5)


def test_other_images_are_not_resumed(tmp_path: Path) -> None:
    """Each image and each label counts, also those of the test set."""
    with pytest.raises(KeyboardInterrupt):
        train(small_network(), out=tmp_path, progress=interrupting(STEPS + 1))
    whole = small_splits()
    for part in ("train", "test"):
        for field in ("images", "labels"):
            values = getattr(getattr(whole, part), field).clone()
            values[-1] = 1 - values[-1].clamp(max=1)
            changed = replace(getattr(whole, part), **{field: values})
            data = replace(whole, **{part: changed})
            message = naming("epoch.pt", re.compile(f"{part}(ing)? images"))
            with pytest.raises(ChitaError, match=message):
                train(small_network(), out=tmp_path, resume=True, data=data)


def test_wrong_arguments() -> None:
    with pytest.raises(ChitaError, match=naming("resume", "out")):
        train(small_network(), resume=True)
    with pytest.raises(ChitaError, match=naming("method", "chita-bso", "none")):
        train(small_network(), method="none")
    with pytest.raises(ChitaError, match=naming("batch_size", 220, 221)):
        train(small_network(), recipe=replace(RECIPE, batch_size=221))


def test_a_rate_that_is_too_high_is_told() -> None:
    wild = replace(RECIPE, learning_rate=1e20)
    with pytest.raises(ChitaError, match=naming(re.compile(r"epoch \d"), "learning_rate", 1e20)):
        train(linear_network(), recipe=wild, method="global-magnitude")


def on_one_of_two(rank: int, folder: str) -> dict[str, Any]:
    """Trainings on this rank: alike to one process, and one that is broken off and goes on."""
    recipe, out = replace(RECIPE, augment=None), Path(folder)
    models = {name: linear_network() for name in ("chita-bso", "rigl")}
    models |= {"whole": small_network(), "resumed": small_network()}
    histories = {
        name: train(models[name], recipe=recipe, method=name) for name in ("chita-bso", "rigl")
    }
    histories["whole"] = train(models["whole"])
    with pytest.raises(KeyboardInterrupt):
        train(small_network(), out=out, progress=interrupting(2 * STEPS + 2))
    assert EpochFile.done(out) == (2, 5)
    histories["resumed"] = train(models["resumed"], out=out, resume=True)
    return {name: (without_time(histories[name]), models[name].state_dict()) for name in models}


def test_two_ranks(tmp_path: Path) -> None:
    one, other = on_ranks(2, on_one_of_two, str(tmp_path))
    for name, (history, state) in one.items():  # batch norm and dropout included
        assert history == other[name][0]
        assert all(torch.equal(state[key], other[name][1][key]) for key in state)
    assert one["resumed"][0] == one["whole"][0]
    assert all(torch.equal(one["resumed"][1][key], one["whole"][1][key]) for key in state)
    for method in ("chita-bso", "rigl"):  # what one process does, but for rounding
        alone = linear_network()
        train(alone, recipe=replace(RECIPE, augment=None), method=method)
        for name, tensor in alone.state_dict().items():
            assert torch.equal(one[method][1][name] == 0, tensor == 0)
            assert torch.allclose(one[method][1][name], tensor, rtol=1e-3, atol=1e-5)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("method", METHODS)
def test_on_a_gpu(method: str, caplog: pytest.LogCaptureFixture) -> None:
    model = small_network()
    history = train(model, method=method, device="cuda")
    kept = kept_weights(Weights(model).size, 0.8)
    # What grew in a unit that died since is still zero; which ones die depends on the device.
    assert 0.9 * kept <= history.nonzeros <= kept + 1
    assert all(
        isinstance(parameter, nn.Parameter) and parameter.is_cuda
        for parameter in model.parameters()
    )
    assert "CUDA graph" not in caplog.text
