"""A batch of samples as a user gives it: `(inputs, targets)`, or a dict of the model's keywords.

Dimension 0 of every tensor is that of the samples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from chita.errors import ChitaError, describe_error
from chita.model.forward import run_model
from chita.model.samples.arrays import IGNORED, LABELS, InputSpec, list_depth, to_tensors
from chita.model.samples.misfits import MISFITS, remedy
from chita.model.token_models import MASK

AS_GIVEN = InputSpec()  # arrays keep their types


@dataclass(frozen=True)
class Batch:
    """A batch of samples.

    Attributes:
        content: a tuple (arguments of the model, targets), or a dict of the model's keywords.
        size: the number of samples.
    """

    content: tuple[tuple[Any, ...], Any] | dict[str, Any]
    size: int

    def __getitem__(self, part: slice) -> Batch:
        """Return the samples of `part`, as views."""
        taken = range(self.size)[part]
        return Batch(map_tensors(lambda tensor: tensor[part], self.content), len(taken))

    def select(self, index: Tensor) -> Batch:
        """Copy the samples at `index`, a vector of integers."""
        content = map_tensors(lambda tensor: tensor[index.to(tensor.device)], self.content)
        return Batch(content, len(index))

    def to(self, device: torch.device) -> Batch:
        """Return the same samples on `device`."""
        return self.map(lambda tensor: tensor.to(device))

    def map(self, change: Callable[[Tensor], Tensor]) -> Batch:
        """Return the same samples with another form of each tensor."""
        return replace(self, content=map_tensors(change, self.content))

    def outputs(self, model: nn.Module) -> Any:
        """Run the model; if it fails, raise a ChitaError with the shapes of the inputs."""
        inputs = copied(self.inputs)
        try:
            return model(**inputs) if isinstance(inputs, dict) else run_model(model, inputs)
        except (ChitaError, torch.cuda.OutOfMemoryError):
            raise
        except MISFITS as error:
            tensors = tensors_of(inputs)
            given = " and ".join(f"of shape {tuple(x.shape)} ({x.dtype})" for x in tensors)
            raise ChitaError(
                f"the model fails on inputs {given}: {describe_error(error)}"
                f"{remedy(model, inputs, tensors, error)}"
            ) from error

    @property
    def inputs(self) -> tuple[Any, ...] | dict[str, Any]:
        """The arguments of the model, or its keyword arguments."""
        return self.content if isinstance(self.content, dict) else self.content[0]

    def split(self, size: int) -> Iterator[Batch]:
        """Divide the batch into pieces of `size` samples; the last one may be smaller."""
        return (self[start : start + size] for start in range(0, self.size, size))


def first_samples(batches: Iterable[Batch], samples: float) -> Iterator[Batch]:
    """Yield the first batches, up to a number of samples; the last one may be cut."""
    left = samples
    for batch in batches:
        if left <= 0:
            return
        yield batch if batch.size <= left else batch[: int(left)]
        left -= batch.size


def regrouped(batches: Iterable[Batch], size: int) -> Iterator[Batch]:
    """Yield the samples in batches of one size, smaller where the shape changes and at the end.

    Libraries select kernels anew for each number of samples, which may take seconds on a GPU.
    """
    rest: Batch | None = None
    for batch in batches:
        if rest is not None and differ_in_shape(rest, batch):
            yield rest
            rest = None
        rest = batch if rest is None else join([rest, batch])
        whole = rest.size // size * size
        yield from rest[:whole].split(size)
        rest = rest[whole:] if rest.size > whole else None
    if rest is not None:
        yield rest


def differ_in_shape(one: Batch, other: Batch) -> bool:
    """Return whether two batches of the same structure have samples of different shapes."""
    first, second = (_sorted_by_key(batch.content) for batch in (one, other))
    shapes, others = ([t.shape[1:] for t in tensors_of(nest)] for nest in (first, second))
    return type(first) is type(second) and len(shapes) == len(others) and shapes != others


def _sorted_by_key(content: Any) -> Any:
    return dict(sorted(content.items())) if isinstance(content, dict) else content


def map_tensors(function: Callable[[Tensor], Any], nest: Any) -> Any:
    """Apply `function` to all tensors of a nest of tuples, lists and dicts."""
    if isinstance(nest, Tensor):
        return function(nest)
    if isinstance(nest, Mapping):
        return {key: map_tensors(function, value) for key, value in nest.items()}
    if isinstance(nest, (tuple, list)):
        return tuple(map_tensors(function, value) for value in nest)
    return nest


def copied(nest: Any) -> Any:
    """Copy all tensors of a nest.

    A forward pass or a loss may change its arguments in place. The samples belong to the caller,
    and later passes read them again. A copy takes little time beside a forward pass, and needs no
    assumption about when a model changes its inputs.
    """
    return map_tensors(Tensor.clone, nest)


def tensors_of(nest: Any) -> list[Tensor]:
    """Return the tensors of a nest, in order."""
    found: list[Tensor] = []
    map_tensors(found.append, nest)
    return found


def bytes_of(nest: Any) -> int:
    """Return the size of all tensors of a nest."""
    return sum(tensor.nbytes for tensor in tensors_of(nest))


def parse_batch(number: int, given: Any, spec: InputSpec = AS_GIVEN) -> Batch:
    """Check the user's batch `number` and convert it to a `Batch`, which it may be already.

    Args:
        number: the number of the batch, for messages.
        given: (inputs, targets), or a dict of keywords; arrays and lists of numbers are converted.
        spec: what the model takes.
    """
    if isinstance(given, Batch):
        return given
    _check_not_text(given)
    content: tuple[tuple[Any, ...], Any] | dict[str, Any]
    if isinstance(given, Mapping):
        keywords = to_tensors(given, spec, f"batch {number}")
        content = {key: widened(x) if key in LABELS else x for key, x in keywords.items()}
        if spec.predicts:
            content = _without_padding(content)
    elif isinstance(given, (tuple, list)) and len(given) == 2:
        inputs = to_tensors(given[0], spec, f"batch {number}: inputs")
        unpadded = replace(spec, tokens=None)
        targets = widened(to_tensors(given[1], unpadded, f"batch {number}: targets"))
        content = (tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,), targets)
        for role, nest in (("inputs", inputs), ("targets", targets)):
            if not tensors_of(nest):
                raise ChitaError(
                    f"batch {number}: {role} hold no tensor, got {describe(nest)}; inputs alone "
                    "are (inputs,), and need loss='distill'"
                )
    else:
        raise ChitaError(
            f"batch {number} must be a pair (inputs, targets) or a dict, got {describe(given)}; "
            "several inputs are a pair ((a, b), targets), and inputs alone need loss='distill'"
        )
    return Batch(content, sample_count(number, content))


def _check_not_text(given: Any) -> None:
    """Raise a ChitaError if a batch is a text."""
    if isinstance(given, str):
        raise ChitaError(
            f"batches must consist of numbers, got the text {given!r:.60}; tokenize it, and pass "
            "the lists of token ids"
        )


def _without_padding(content: dict[str, Any]) -> dict[str, Any]:
    """Return the keywords of a language model, whose loss leaves out labels at padding."""
    mask = content.get(MASK)

    def marked(labels: Any) -> Any:
        if isinstance(labels, Tensor) and isinstance(mask, Tensor) and labels.shape == mask.shape:
            return labels.masked_fill(mask == 0, IGNORED)
        return labels

    return {key: marked(x) if key in LABELS else x for key, x in content.items()}


def parse_inputs(number: int, given: Any, spec: InputSpec) -> tuple[tuple[Any, ...], int]:
    """Return the arguments of the model in the user's batch `number`, and the number of samples.

    Args:
        number: the number of the batch, for messages.
        given: inputs, a tuple that starts with them, or a dict of keywords, which is one argument;
            it may be a `Batch` already.
        spec: what the model takes.
    """
    if isinstance(given, Batch):
        inputs = given.inputs
        return inputs if isinstance(inputs, tuple) else (inputs,), given.size
    _check_not_text(given)
    if isinstance(given, (tuple, list)) and given and not list_depth(given):
        given = given[0]
    given = to_tensors(given, spec, f"batch {number}")
    inputs = tuple(given) if isinstance(given, (tuple, list)) else (given,)
    if not tensors_of(inputs):
        raise ChitaError(
            f"batch {number}: loss='distill' needs a tensor, a tuple that starts with the inputs, "
            f"or a dict of inputs, got {describe(given)}"
        )
    return inputs, sample_count(number, inputs)


def widened(targets: Any) -> Any:
    """Convert integer targets to int64, the type that torch's losses take."""

    def convert(tensor: Tensor) -> Tensor:
        keeps = tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool
        return tensor if keeps else tensor.long()

    return map_tensors(convert, targets)


def sample_count(number: int, content: Any) -> int:
    """Return the number of samples in the tensors of the user's batch `number`."""
    shapes = [tuple(tensor.shape) for tensor in tensors_of(content)]
    if not shapes:
        raise ChitaError(f"batch {number} must contain a tensor, got {describe(content)}")
    if len({shape[:1] for shape in shapes}) != 1 or () in shapes:
        raise ChitaError(
            f"batch {number}: every tensor must hold the same number of samples in dimension 0, "
            f"got the shapes {', '.join(map(str, shapes))}; join single samples to batches by "
            "DataLoader(samples, batch_size=64)"
        )
    return shapes[0][0]


def join(parts: list[Batch]) -> Batch:
    """Join the samples of all parts; values that are not tensors are those of the first part."""
    if len(parts) == 1:
        return parts[0]
    try:
        content = _concatenate([part.content for part in parts])
    except (KeyError, RuntimeError, TypeError, ValueError) as error:
        raise ChitaError(
            "batches cannot be joined, because their samples differ; pad them to one shape, or "
            f"give batches whose size is a multiple of the requested one ({error})"
        ) from error
    return Batch(content, sum(part.size for part in parts))


def _concatenate(nests: list[Any]) -> Any:
    first = nests[0]
    if isinstance(first, Tensor):
        return torch.cat(nests)
    if isinstance(first, Mapping):
        return {key: _concatenate([nest[key] for nest in nests]) for key in first}
    if isinstance(first, (tuple, list)):
        return tuple(_concatenate(list(same)) for same in zip(*nests, strict=True))
    return first


def describe(given: Any) -> str:
    """Describe a value in an error message."""
    if isinstance(given, (tuple, list)):
        return f"a {type(given).__name__} of {len(given)}"
    if isinstance(given, Tensor):
        return f"a tensor of shape {tuple(given.shape)}"
    return type(given).__name__
