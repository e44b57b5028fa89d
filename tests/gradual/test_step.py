import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from chita.data import Batches
from chita.gradual.mask import Mask
from chita.gradual.objective import Objective, cross_entropy, distillation
from chita.gradual.sparsifier import Sparsifier
from chita.gradual.step import Step
from chita.model import fast_arithmetic
from chita.model.training_step import CapturedStep, fastest
from chita.model.weights import Weights
from tests.gradual.small import small_network, small_splits

BATCH = 20
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


class Nothing(Sparsifier):
    def __init__(self, model: nn.Module) -> None:
        self.weights = Weights(model)

    def finalize(self) -> None: ...

    def state_dict(self) -> dict[str, Tensor]:
        return {}

    def load_state_dict(self, state: dict[str, Tensor]) -> None: ...


class Halved(Nothing):
    """Half of each weight in the forward pass, times a factor that is learned, with a penalty."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__(model)
        self.factor = nn.Parameter(torch.tensor(0.5, device=self.weights.device))

    def effective(self) -> dict[str, Tensor]:
        return {weight.name: self.factor * weight.parameter for weight in self.weights}

    def penalty(self) -> Tensor:
        return 3 * self.factor.square()


def make(
    sparsifier: type[Nothing], device: str = "cpu", objective: Objective | None = None
) -> Step:
    model = small_network().to(device)
    model[6] = nn.Identity()  # no dropout: each pass gives the same
    guest = sparsifier(model)
    parameters = [*model.parameters(), *([guest.factor] if isinstance(guest, Halved) else [])]
    return Step(
        model,
        guest,
        parameters=parameters,
        data=small_splits().train,
        objective=objective or cross_entropy(0.1),
    )


def teacher(device: str = "cpu") -> Objective:
    """The divergence from another network of the same form."""
    inputs, _ = next(iter(Batches(small_splits().train, BATCH)))
    return distillation(small_network(1).to(device), inputs.to(device))


def batch(device: str = "cpu") -> tuple[Tensor, Tensor]:
    train = small_splits().train
    images, labels = next(
        train.read(torch.arange(BATCH), BATCH, augment=None, generator=torch.Generator())
    )
    return images.to(device), labels.to(device)


def gradients(step: Step) -> list[Tensor]:
    return [parameter.grad.clone() for parameter in step.parameters]


def test_the_gradients_are_those_of_the_smoothed_loss() -> None:
    step = make(Nothing)
    inputs, targets = next(iter(Batches(small_splits().train, BATCH)))
    loss = F.cross_entropy(step.model(inputs), targets, label_smoothing=0.1)
    truth = torch.autograd.grad(loss, step.parameters)
    for _ in range(2):  # those of the first call are replaced by those of the second
        assert torch.allclose(step(*batch()), loss, rtol=1e-5)
    for found, expected in zip(gradients(step), truth, strict=True):
        assert torch.allclose(found, expected, rtol=1e-4, atol=1e-6)


def test_the_sparsifier_stands_in_for_weights_and_adds_to_the_loss() -> None:
    step = make(Halved, objective=cross_entropy(0.0))
    inputs, targets = next(iter(Batches(small_splits().train, BATCH)))
    halved = make(Nothing)
    with torch.no_grad():
        for weight in Weights(halved.model):
            weight.parameter.mul_(0.5)
    loss = F.cross_entropy(halved.model(inputs), targets)
    truth = torch.autograd.grad(loss, [weight.parameter for weight in Weights(halved.model)])
    assert float(step(*batch())) == pytest.approx(float(loss.detach()), rel=1e-5)
    own = dict(step.model.named_parameters())
    inside = 0.0  # of the factor: the gradient times the weight, over all weights
    for weight, gradient in zip(Weights(halved.model), truth, strict=True):
        assert torch.allclose(own[weight.name].grad, 0.5 * gradient, rtol=1e-4, atol=1e-6)
        inside += float((gradient * own[weight.name].detach()).sum())
    assert float(step.parameters[-1].grad) == pytest.approx(inside + 3.0, rel=1e-3)


def test_distillation_compares_softened_outputs_with_those_of_the_teacher() -> None:
    step, dense = make(Nothing, objective=teacher()), small_network(1).eval()
    inputs, _ = next(iter(Batches(small_splits().train, BATCH)))
    with torch.no_grad():
        first, second = dense(inputs).topk(2).values.T
        temperature = min(max(float((first - second).mean()) / 2.2, 4.0), 16.0)
        wanted = dense(inputs).div(temperature).softmax(1)
    logits = step.model(inputs).div(temperature).log_softmax(1)
    loss = temperature**2 * F.kl_div(logits, wanted, reduction="batchmean")
    truth = torch.autograd.grad(loss, step.parameters)
    images, labels = batch()
    assert float(step(images, labels.flip(0))) == pytest.approx(float(loss.detach()), rel=1e-4)
    for found, expected in zip(gradients(step), truth, strict=True):
        assert torch.allclose(found, expected, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize(
    ("least", "has_bfloat16", "expected"),
    [(1, True, torch.bfloat16), (1, False, torch.float32), (10**9, True, torch.float32)],
)
def test_large_models_run_in_bfloat16_where_the_device_has_it(
    least: int, has_bfloat16: bool, expected: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    capabilities = {"avx512_bf16": has_bfloat16}
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities, raising=False)
    monkeypatch.setattr(fast_arithmetic, "LEAST_CAST", least)
    step = make(Nothing)
    found = []
    step.model.register_forward_hook(lambda model, inputs, outputs: found.append(outputs.dtype))
    assert step(*batch()).dtype == torch.float32
    assert found == [expected]


@needs_gpu
@pytest.mark.parametrize("sparsifier", [Nothing, Halved])
@pytest.mark.parametrize("distill", [False, True])
def test_a_graph_gives_the_gradients_of_the_step(sparsifier: type[Nothing], distill: bool) -> None:
    images, labels = batch("cuda")
    step = make(sparsifier, "cuda", teacher("cuda") if distill else None)
    buffers = [buffer.clone() for buffer in step.model.buffers()]
    graph = fastest(step, images, labels)
    assert isinstance(graph, CapturedStep)
    for buffer, before in zip(step.model.buffers(), buffers, strict=True):
        assert torch.equal(buffer, before)
    optimizer = torch.optim.SGD(step.parameters, lr=0.1, momentum=0.9, fused=True)
    mask = Mask(Weights(step.model), optimizer)
    mask.kept = torch.rand(Weights(step.model).size, device="cuda") < 0.5
    for shift in range(3):  # the weights change in place between replays
        other = images.roll(shift, 0), labels.roll(shift, 0)
        loss = float(step(*other))
        truth = gradients(step)
        assert float(graph(*other)) == pytest.approx(loss, rel=0.02)
        for found, expected in zip(gradients(step), truth, strict=True):
            assert torch.allclose(
                found, expected, rtol=0.1, atol=0.05 * float(expected.abs().max())
            )
        optimizer.step()
        assert torch.equal(Weights(step.model).vector() != 0, mask.kept)
