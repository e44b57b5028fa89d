from typing import Any

import pytest
import torch
from torch import Tensor, nn

import chita
from chita.errors import ChitaError
from chita.model.accuracy import accuracy
from chita.pruning.sensitivity.measure import LADDER
from tests.support.messages import naming
from tests.support.pruning import cut, digits, mlpnet, points, same, snapshot, tiny


def test_each_score_is_that_of_the_network_with_one_layer_pruned_by_magnitude() -> None:
    batches = digits(300)
    found = chita.sensitivity(mlpnet(), batches, samples=300)
    images, labels = (torch.cat(parts) for parts in zip(*batches, strict=True))
    assert [layer.name for layer in found.layers] == ["fc1.weight", "fc2.weight", "fc3.weight"]
    for layer in found.layers:
        for sparsity, score in zip(LADDER, layer.scores, strict=True):
            model = mlpnet()
            others = snapshot(model)
            chita.prune(
                model, [], sparsity=sparsity, method="magnitude", include=layer.name, progress=False
            )
            del others[layer.name]
            assert same(others, {n: snapshot(model)[n] for n in others})
            with torch.no_grad():
                loss = nn.functional.cross_entropy(model(images), labels)
            assert score.loss == pytest.approx(float(loss), rel=1e-5)
            assert score.accuracy == pytest.approx(accuracy(model, batches))
    assert found.dense.accuracy == pytest.approx(accuracy(mlpnet(), batches))


def test_autocast_does_not_reach_the_dense_outputs() -> None:
    images = torch.cat([x for x, _ in digits(50)])
    plain = chita.sensitivity(mlpnet(), [images], loss="distill", sparsities=(0.5,))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = chita.sensitivity(mlpnet(), [images], loss="distill", sparsities=(0.5,))
    assert found.dense == plain.dense and found.layers == plain.layers


@pytest.mark.parametrize("name", ["distill", "distill-mse"])
def test_distilled_curves_are_divergences_from_the_dense_outputs(name: str) -> None:
    images = torch.cat([x for x, _ in digits(200)])
    found = chita.sensitivity(mlpnet(), [images], loss=name, sparsities=(0.5, 0.9))
    assert found.dense.loss == pytest.approx(0, abs=1e-7) and found.dense.accuracy is None
    for layer in found.layers:
        for sparsity, score in zip((0.5, 0.9), layer.scores, strict=True):
            model = mlpnet()
            chita.prune(
                model, [], sparsity=sparsity, method="magnitude", include=layer.name, progress=False
            )
            with torch.no_grad():
                now, was = model(images).double(), mlpnet()(images).double()
            if name == "distill":
                p, q = now.log_softmax(1), was.log_softmax(1)
                truth = (q.exp() * (q - p)).sum(1).mean()
            else:
                truth = (now - was).square().sum(1).mean() / was.square().sum(1).mean()
            assert score.loss == pytest.approx(float(truth), rel=1e-3)


def test_the_model_is_left_as_it_is_even_if_its_loss_fails() -> None:
    model = tiny().train()
    before = snapshot(model)
    chita.sensitivity(model, cut(points(24), 8))
    assert same(before, snapshot(model)) and model.training

    calls = 0

    def failing(outputs: Tensor, targets: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        if calls > 2:
            raise KeyboardInterrupt
        return outputs.mean()

    with pytest.raises(KeyboardInterrupt):
        chita.sensitivity(model, cut(points(24), 8), loss=failing)
    assert same(before, snapshot(model)) and model.training


def test_forward_passes_are_layers_times_ladder_and_progress_counts_them() -> None:
    model, seen = tiny(), list[tuple[int, int]]()
    passes = list[bool]()
    model.register_forward_pre_hook(lambda *_: passes.append(torch.is_grad_enabled()))
    chita.sensitivity(
        model, [points(24)], sparsities=(0.5, 0.9), progress=lambda *x: seen.append(x)
    )
    assert passes == [False] * (1 + 2 * 2)
    assert seen == [(1, 4), (2, 4), (3, 4), (4, 4)]


def test_only_so_many_samples_and_the_same_each_time() -> None:
    model, sizes = tiny(), list[float]()
    model.register_forward_pre_hook(lambda _, inputs: sizes.append(float(inputs[0].sum())))
    found = chita.sensitivity(model, cut(points(24), 12), samples=10, sparsities=(0.5,))
    assert found.samples == 10
    assert len(set(sizes)) == 1


def test_a_regression_and_a_model_with_its_own_loss_have_no_accuracy() -> None:
    inputs, _ = points(16)
    targets = inputs[:, :3]
    found = chita.sensitivity(tiny(), cut((inputs, targets), 8), loss=nn.functional.mse_loss)
    with torch.no_grad():
        assert found.dense.loss == pytest.approx(float((tiny()(inputs) - targets).square().mean()))
    assert found.dense.accuracy is None

    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = tiny()

        def forward(self, x: Tensor, y: Tensor) -> Any:
            class Outputs:
                loss = (self.net(x) - y).square().mean()

            return Outputs()

    own = chita.sensitivity(Own(), [{"x": inputs, "y": targets}])
    assert own.dense.loss == pytest.approx(found.dense.loss)
    assert own.layers[0].scores[-1].loss == pytest.approx(found.layers[0].scores[-1].loss)
    assert own.dense.accuracy is None


def test_outputs_with_logits_have_an_accuracy() -> None:
    class Named(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = tiny()

        def forward(self, x: Tensor) -> Any:
            return {"logits": self.net(x)}

    named = chita.sensitivity(Named(), cut(points(24), 8), sparsities=(0.5,))
    plain = chita.sensitivity(tiny(), cut(points(24), 8), sparsities=(0.5,))
    assert named.dense == plain.dense and plain.dense.accuracy is not None
    assert [layer.scores for layer in named.layers] == [layer.scores for layer in plain.layers]


@pytest.mark.parametrize("ladder", [(), (0.0, 0.5), (0.5, 0.5), (0.9, 0.5), (0.5, 1.0)])
def test_a_ladder_must_rise(ladder: tuple[float, ...]) -> None:
    with pytest.raises(ChitaError, match=naming("sparsities", list(ladder))):
        chita.sensitivity(tiny(), cut(points(8), 8), sparsities=ladder)


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("sparsities", 0.5),
        ("sparsities", ["a"]),
        ("sparsities", [0.5, None]),
        ("seed", "a"),
        ("seed", -1),
        ("progress", True),
    ],
)
def test_wrong_types(argument: str, value: Any) -> None:
    with pytest.raises(ChitaError, match=naming(argument, repr(value))):
        chita.sensitivity(tiny(), cut(points(8), 8), **{argument: value})


def test_a_broken_network_is_refused() -> None:
    def infinite(outputs: Tensor, targets: Tensor) -> Tensor:
        return outputs.sum() * torch.inf

    with pytest.raises(ChitaError, match=naming("loss", "dense", "-inf")):
        chita.sensitivity(tiny(), cut(points(8), 8), loss=infinite)
    with pytest.raises(ChitaError, match=naming("loss", "distill", "distill-mse", "kl")):
        chita.sensitivity(tiny(), cut(points(8), 8), loss="kl")
    with pytest.raises(ChitaError, match=naming("samples", 0)):
        chita.sensitivity(tiny(), cut(points(8), 8), samples=0)
