"""loss="distill": calibration against the dense network's own outputs, without labels.

The target of a sample is the dense network's answer f0, and what pruning must keep small is the
divergence from it. But the divergence cannot make A: at the dense weights its gradient is zero,
sample by sample. So the loss has the divergence for its value and, for its gradient, that of the
log-likelihood of a target drawn from what the dense network says:

    classes:   value KL(p0 || p),      gradient of -log p(y),        y ~ p0
    features:  value |f - f0|^2 / s,   gradient of |f - t|^2 / s,    t ~ N(f0, s/2)

In the mean over the draws the gradients agree, and at the dense weights the second moment of the
drawn one is the Hessian of the value. It is the true Fisher, where labels give the empirical one.
"""

from __future__ import annotations

import copy
import logging
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from chita.batches import Batch, SampleStream, map_tensors, sample_count, tensors_of
from chita.errors import ChitaError
from chita.gradients.losses import Loss
from chita.modes import device_of
from chita.outputs import answer_of, features_of, run_model

logger = logging.getLogger(__name__)

_MOST_IN_BATCH = 1 << 32  # sample numbers set apart for each given batch


def distilled(
    model: nn.Module, batches: Iterable[Any], name: str, seed: int
) -> tuple[SampleStream, Loss]:
    """The inputs of `batches` with the dense network's answers for targets, and the loss for them.

    Args:
        model: as it is before pruning; a frozen copy of it answers, as samples are read.
        batches: of inputs: a tensor, the first of a tuple or a list, or a dict of keywords.
        name: "distill" takes a tensor or logits for classes, anything else for features;
            "distill-mse" takes everything for features.
        seed: of the targets drawn.
    """
    stream = _Inputs(batches, seed)
    dense = _Dense(model, stream.look(), seed, squares=name == "distill-mse")
    stream.dense = dense
    return stream, dense.loss


class _Inputs(SampleStream):
    """A stream of inputs alone; what is taken from it has the answers of `dense` for targets."""

    dense: _Dense

    def look(self) -> Batch:
        """The first batch, without targets."""
        first = next(self._read(), None)
        if first is None:
            raise ChitaError("batches hold no samples")
        return first

    def parse(self, number: int, given: Any) -> Batch:
        """The inputs of a given batch. In place of the targets, each sample has a number."""
        if isinstance(given, (tuple, list)) and given:
            given = given[0]
        inputs = tuple(given) if isinstance(given, (tuple, list)) else (given,)
        if not tensors_of(inputs):
            raise ChitaError(
                f"batch {number}: loss='distill' takes a tensor, a tuple that starts with the "
                f"inputs, or a dict of them, got a {type(given).__name__}"
            )
        size = sample_count(number, inputs)
        numbers = torch.arange(size, device=tensors_of(inputs)[0].device)
        return Batch((inputs, number * _MOST_IN_BATCH + numbers), size)

    def take(self, count: int, chunk: int, *, unit: int = 1) -> Iterator[Batch]:
        for piece in super().take(count, chunk, unit=unit):
            yield self.dense.label(piece)


class _Dense:
    """The network before pruning, which gives the samples their targets."""

    def __init__(self, model: nn.Module, first: Batch, seed: int, *, squares: bool) -> None:
        self._model = copy.deepcopy(model).eval().requires_grad_(False)
        self._start = _mixed(seed)
        outputs, answer, counted = self._answer(first)
        classes = answer.shape[-1]
        self._squares = squares or features_of(outputs) is not None or classes == 1
        self._scale = float(_mean(answer.square().sum(-1), counted)) or 1.0
        what = "features" if self._squares else "classes"
        logger.info("distilling: the model's answer is taken for %d %s", classes, what)

    def label(self, batch: Batch) -> Batch:
        """The inputs of `batch` with the answers, and targets drawn from them."""
        assert isinstance(batch.content, tuple)
        inputs, numbers = batch.content
        _, answer, counted = self._answer(batch)
        drawn = self._drawn_features if self._squares else self._drawn_classes
        targets = {"answer": answer, "drawn": drawn(answer, numbers), "counted": counted}
        home = map_tensors(lambda tensor: tensor.to(numbers.device), targets)
        return Batch((inputs, home), batch.size)

    def loss(self, outputs: Any, targets: Mapping[str, Tensor]) -> Tensor:
        """The value of the divergence with the gradient of the drawn targets' likelihood."""
        if self._squares:
            answer = answer_of(outputs)
            true, drawn = (
                (answer - targets[which]).square().sum(-1) / self._scale
                for which in ("answer", "drawn")
            )
        else:
            log_p, log_p0 = (_log_softmax(f) for f in (answer_of(outputs), targets["answer"]))
            true = (log_p0.exp() * (log_p0 - log_p)).sum(-1)
            drawn = -log_p.gather(-1, targets["drawn"].unsqueeze(-1)).squeeze(-1)
        value, likelihood = (_mean(each, targets["counted"]) for each in (true, drawn))
        return value.detach() + (likelihood - likelihood.detach())

    @torch.no_grad()
    def _answer(self, batch: Batch) -> tuple[Any, Tensor, Tensor]:
        """The outputs, the answer in them (m, places..., d), and which places count, (m, ...)."""
        content = batch.to(device_of(self._model)).content
        assert isinstance(content, tuple)
        outputs = run_model(self._model, content[0])
        answer = answer_of(outputs)
        return outputs, answer, self._counted(content[0], answer)

    def _counted(self, inputs: tuple[Any, ...], answer: Tensor) -> Tensor:
        """1 at each place of the answer, but 0 where the attention mask says padding."""
        config = getattr(self._model, "config", None)
        decoder = "decoder_" if getattr(config, "is_encoder_decoder", False) else ""
        keywords = inputs[0] if isinstance(inputs[0], Mapping) else {}
        mask = keywords.get(f"{decoder}attention_mask")
        if isinstance(mask, Tensor) and answer.ndim == 3 and mask.shape == answer.shape[:2]:
            return mask.to(answer)
        return torch.ones_like(answer[..., 0])

    def _drawn_classes(self, answer: Tensor, numbers: Tensor) -> Tensor:
        """A class at each place, by inverting the distribution function."""
        below = _log_softmax(answer).exp().cumsum(-1)
        uniform = self._random(torch.rand, answer.shape[1:-1], numbers).to(below)
        drawn: Tensor = (below < uniform.unsqueeze(-1)).sum(-1)
        return drawn.clamp_max(answer.shape[-1] - 1)

    def _drawn_features(self, answer: Tensor, numbers: Tensor) -> Tensor:
        """Normal numbers around the answer."""
        normal = self._random(torch.randn, answer.shape[1:], numbers).to(answer)
        return answer + math.sqrt(self._scale / 2) * normal

    def _random(self, draw: Any, shape: tuple[int, ...], numbers: Tensor) -> Tensor:
        """(m, *shape), each sample's from a seed of its own.

        However the samples are cut, shared by ranks or taken up again, they get the same.
        """
        generator = torch.Generator()
        return torch.stack(
            [
                draw(shape, generator=generator.manual_seed(_mixed(number + self._start)))
                for number in numbers.tolist()
            ]
        )


def _mixed(number: int) -> int:
    """32 bits that depend on all 64 of `number`: torch's CPU generator looks at no more."""
    return (number * 0x9E3779B97F4A7C15 % 2**64) >> 32


def _log_softmax(answer: Tensor) -> Tensor:
    return answer.log_softmax(-1, dtype=torch.promote_types(answer.dtype, torch.float32))


def _mean(each: Tensor, counted: Tensor) -> Tensor:
    """The mean over the places that count."""
    return (each * counted).sum() / counted.sum().clamp_min(1)
