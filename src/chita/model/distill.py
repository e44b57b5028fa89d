"""loss="distill": calibration on the dense network's own outputs, without labels.

The target of a sample is the answer f0 of the dense network. Pruning must keep the divergence of
the pruned network's answer f from it small:

    classes:   KL(p0 || p)
    features:  |f - f0|^2 / s,   s the mean of |f0|^2

The gradient of the divergence is zero at the dense weights for every sample, and cannot form A.
Each row therefore projects the divergence on a random direction. A mini-batch gives a row a of A
and an entry of c (see `solver/problem.py`), both divided by the root of its number of positions:

    classes:   a = sum of grad -log p_y,     y drawn from p0
               c = |p - p0|^2 / (|p - p0|^2 + 1 - |p0|^2), each of them a sum over the positions
    features:  a = sum of nu . grad f,       nu drawn from N(0, 2 / s)
               c = sum of nu . (f - f0)

At the dense weights, the mean of a a^T is the Hessian of the divergence, the true Fisher, and
c = 0. With c = 1, as for labels, the first-order term of classes would be unbiased. Near the dense
weights, however, it would consist of sampling noise, which a solver can fit if there are few
samples; c is the share of the signal. For features, c a is unbiased, and small if f - f0 is small.
The documentation page on calibration without labels has measurements.
"""

from __future__ import annotations

import copy
import logging
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from chita.errors import ChitaError
from chita.model.fast_arithmetic import use_fast_format
from chita.model.forward import answer_of, attention_mask, device_of, features_of
from chita.model.named_losses import DISTILL
from chita.model.samples.arrays import InputSpec
from chita.model.samples.batch import Batch, map_tensors, parse_inputs, tensors_of
from chita.model.samples.given_data import are_inputs_alone
from chita.model.samples.stream import SampleStream
from chita.model.token_models import without_cache

logger = logging.getLogger(__name__)

MARGIN = 2.2  # docs/notes.md has the comparison
TEMPERATURES = (4.0, 16.0)  # the lowest and the highest
STORED_BYTES = 1 << 20  # larger answers to a sample are computed whenever they are used
UNIT = 0.01  # the largest deviation of a length from 1, in half precision
_MOST_IN_BATCH = 1 << 32  # sample numbers reserved for each given batch


def distilled(
    model: nn.Module, batches: Any, name: str, seed: int
) -> tuple[InputStream, DenseNetwork]:
    """Return a stream of inputs with the dense network's answers as targets, and that network.

    Args:
        model: the model before pruning; a frozen copy of it computes the answers as samples are
            read.
        batches: batches of inputs: a tensor, a tuple or list that starts with it, or a dict of
            keywords.
        name: "distill" treats a tensor or logits as classes, and other outputs, numbers and
            vectors of length 1 as features; "distill-mse" treats all outputs as features.
        seed: the seed of the random directions.
    """
    stream = InputStream(batches, seed, spec=InputSpec.of(model))
    first = stream.peek()
    if first is None:
        raise ChitaError("there are no samples in batches; pass at least one")
    stream.dense = DenseNetwork(model, first, seed, squares=name == "distill-mse")
    return stream, stream.dense


def default_loss(model: nn.Module, batches: Any) -> str | None:
    """Return the loss of a run whose loss is not given: "distill" if the data have no targets."""
    if not are_inputs_alone(model, batches):
        return None
    logger.warning(
        "batches contain inputs alone, so the loss is loss='distill', the divergence from the "
        "outputs of the dense network; pass (inputs, targets) to use labels"
    )
    return DISTILL


class InputStream(SampleStream):
    """A stream of inputs; the samples taken from it have the answers of `dense` as targets."""

    labelled = False
    dense: DenseNetwork

    def parse(self, number: int, given: Any) -> Batch:
        """Return the inputs of a given batch, with a number for each sample as its target."""
        if isinstance(given, Batch):
            return given
        inputs, size = parse_inputs(number, given, self.spec)
        numbers = torch.arange(size, device=tensors_of(inputs)[0].device)
        return Batch((inputs, number * _MOST_IN_BATCH + numbers), size)

    def prepare(self, piece: Batch) -> Batch:
        """Add the answers of the dense network, now or when they are used."""
        if self.dense.answer_bytes > STORED_BYTES:
            return Unanswered(piece.content, piece.size, self.dense)
        return self.dense.label(piece)


@dataclass(frozen=True)
class Unanswered(Batch):
    """Inputs whose answers are too large to keep; each move to a device computes them again.

    A language model answers each token with a score for every word: 200 MB for 1024 tokens.
    """

    dense: DenseNetwork

    def __getitem__(self, part: slice) -> Unanswered:
        """Return the samples of `part`, as views."""
        piece = super().__getitem__(part)
        return Unanswered(piece.content, piece.size, self.dense)

    def to(self, device: torch.device) -> Batch:
        """Return the samples with the answers on `device`."""
        return self.dense.label(Batch(self.content, self.size).to(device))


class DenseNetwork:
    """The network before pruning, which computes targets and compares answers with them.

    Attributes:
        answer_bytes: the size of the answer to one sample.
    """

    def __init__(self, model: nn.Module, first: Batch, seed: int, *, squares: bool) -> None:
        self._model = copy.deepcopy(model).eval().requires_grad_(False)
        use_fast_format(self._model)
        self._device = device_of(self._model)
        self._dtype = InputSpec.of(self._model).dtype or torch.get_default_dtype()
        self._start = _mixed(seed)
        outputs, answer, counted = self._answer(first)
        self.answer_bytes = answer.nbytes // first.size
        classes = answer.shape[-1]
        self._squares = squares or features_of(outputs) is not None or _are_embeddings(answer)
        self._scale = float(_mean(_precise(answer).square().sum(-1), counted)) or 1.0
        what = "features" if self._squares else "classes"
        logger.info("distillation treats the model's answer as %d %s", classes, what)

    def parameters(self) -> Iterator[nn.Parameter]:
        """Return the parameters of the network."""
        return self._model.parameters()

    def answers(self, batch: Batch) -> Batch:
        """Return the inputs of `batch` with the answers, and the positions that count."""
        inputs = _inputs(batch)
        _, answer, counted = self._answer(batch)
        home = tensors_of(inputs)[0].device
        targets = map_tensors(
            lambda tensor: tensor.to(home), {"answer": answer, "counted": counted}
        )
        return Batch((inputs, targets), batch.size)

    def label(self, batch: Batch) -> Batch:
        """Return the inputs of `batch` with the answers and a random direction for each."""
        assert isinstance(batch.content, tuple)
        inputs, numbers = batch.content
        _, answer, counted = self._answer(batch)
        random = self._random(answer, numbers)
        targets = {"answer": answer, "random": random, "counted": counted}
        home = map_tensors(lambda tensor: tensor.to(numbers.device), targets)
        return Batch((inputs, home), batch.size)

    def divergence(
        self, outputs: Any, targets: Mapping[str, Tensor], temperature: float = 1.0
    ) -> Tensor:
        """Compute the mean divergence from the dense answers over the counted positions.

        Args:
            outputs: the outputs of the pruned network.
            targets: the targets of `answers` or `label`.
            temperature: T divides the logits of classes, and T^2 multiplies the divergence, so that
                its gradient keeps its size (Hinton et al. 2015).
        """
        answer, dense, counted = answer_of(outputs), targets["answer"], targets["counted"]
        if self._squares:
            return _mean(_difference(answer, dense).square().sum(-1), counted) / self._scale
        log_p, log_p0 = (_log_softmax(logits / temperature) for logits in (answer, dense))
        each = (log_p0.exp() * (log_p0 - log_p)).sum(-1)
        return temperature**2 * _mean(each, counted)

    def temperature(self, targets: Mapping[str, Tensor]) -> float:
        """Return a temperature for `divergence`: that of a confident network is higher.

        If the largest logit exceeds all others by far, probabilities show little but the class. The
        temperature reduces the mean difference of the two largest logits to MARGIN. Features have
        no temperature, and it is 1.

        Args:
            targets: the targets of `answers` or `label` for some samples.
        """
        if self._squares:
            return 1.0
        largest = _precise(targets["answer"]).topk(2, -1).values
        margin = float(_mean(largest[..., 0] - largest[..., 1], targets["counted"]))
        wanted = margin / MARGIN if math.isfinite(margin) else 0.0
        return min(max(wanted, TEMPERATURES[0]), TEMPERATURES[1])

    def row(self, outputs: Any, targets: Mapping[str, Tensor]) -> Tensor:
        """Compute a scalar whose gradient is a row of A and whose value is the entry of c."""
        answer, counted = answer_of(outputs), targets["counted"]
        row = _features_row if self._squares else _classes_row
        scale = math.sqrt(2 / self._scale) if self._squares else 1.0
        root = counted.sum().clamp_min(1).sqrt()
        return scale * row(answer, targets["answer"], targets["random"], counted) / root

    @torch.no_grad()
    def _answer(self, batch: Batch) -> tuple[Any, Tensor, Tensor]:
        """Return the outputs, the answer (m, positions..., d), and counted positions, (m, ...)."""
        inputs = _inputs(batch.to(self._device))
        with without_cache(self._model):
            outputs = Batch((inputs, ()), batch.size).outputs(self._model)
        answer = answer_of(outputs)
        # Under autocast, answers are rounded, but sums over them are not.
        answer = answer.to(torch.promote_types(answer.dtype, self._dtype))
        return outputs, answer, self._counted(inputs, answer)

    def _counted(self, inputs: tuple[Any, ...], answer: Tensor) -> Tensor:
        """Return 1 at each position of the answer, and 0 at padding in the attention mask."""
        mask = attention_mask(self._model, inputs)
        if mask is not None and answer.ndim == 3 and mask.shape == answer.shape[:2]:
            return mask.to(_precise(answer[..., 0]))
        return torch.ones_like(_precise(answer[..., 0]))

    def _random(self, answer: Tensor, numbers: Tensor) -> Tensor:
        """Draw normal numbers for features, or a uniform number per position for classes.

        Each sample has its own seed, so that it gets the same numbers in every division into
        batches, on every rank and in a resumed run.
        """
        draw = torch.randn if self._squares else torch.rand
        shape = answer.shape[1:] if self._squares else answer.shape[1:-1]
        generator, drawn = torch.Generator(), []
        for number in numbers.tolist():
            generator.manual_seed(_mixed(number + self._start))
            drawn.append(draw(shape, generator=generator))
        return torch.stack(drawn).to(_precise(answer))


def _are_embeddings(answer: Tensor) -> bool:
    """Return whether answers are single numbers or vectors of length 1, (..., d).

    Logits do not have length 1 in all samples, but normalised embeddings do.
    """
    lengths = answer.detach().float().norm(dim=-1)
    return answer.shape[-1] == 1 or bool((lengths - 1).abs().max() < UNIT)


def _inputs(batch: Batch) -> tuple[Any, ...]:
    """Return the arguments of the model; a dict of keywords is a single argument."""
    return (batch.content,) if isinstance(batch.content, dict) else batch.content[0]


def _features_row(answer: Tensor, dense: Tensor, nu: Tensor, counted: Tensor) -> Tensor:
    """Compute the sum of nu . (f - f0), which is both the value and the differentiated sum."""
    return ((nu * _difference(answer, dense)).sum(-1) * counted).sum()


def _classes_row(answer: Tensor, dense: Tensor, uniform: Tensor, counted: Tensor) -> Tensor:
    """Compute a scalar: its gradient is that of the sum of -log p_y, its value the signal share."""
    log_p, p0 = _log_softmax(answer), _log_softmax(dense).exp()
    y = (p0.cumsum(-1) < uniform.unsqueeze(-1)).sum(-1, keepdim=True).clamp_max(p0.shape[-1] - 1)
    drawn = (-log_p.gather(-1, y).squeeze(-1) * counted).sum()
    signal = ((log_p.detach().exp() - p0).square().sum(-1) * counted).sum()
    noise = ((1 - p0.square().sum(-1)) * counted).sum()
    share = signal / (signal + noise).clamp_min(torch.finfo(signal.dtype).tiny)
    return share + (drawn - drawn.detach())


def _mixed(number: int) -> int:
    """Return 32 bits that depend on all 64 of `number`: torch's CPU generator uses only 32."""
    return (number * 0x9E3779B97F4A7C15 % 2**64) >> 32


def _precise(tensor: Tensor) -> Tensor:
    """Return a tensor in at least float32: sums and counts in half precision overflow."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))


def _difference(answer: Tensor, dense: Tensor) -> Tensor:
    return _precise(answer) - _precise(dense)


def _log_softmax(answer: Tensor) -> Tensor:
    return _precise(answer).log_softmax(-1)


def _mean(each: Tensor, counted: Tensor) -> Tensor:
    """Return the mean over the counted positions."""
    return (each * counted).sum() / counted.sum().clamp_min(1)
