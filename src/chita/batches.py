"""The user's batches as one endless stream of samples, cut to the sizes that are asked for.

`batches` is any re-iterable of `(inputs, targets)` or of dicts (the keyword arguments of a model
that gives its own loss). Dimension 0 of every tensor counts the samples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from chita.data.dataset import Batches
from chita.errors import ChitaError
from chita.outputs import run_model

Place = tuple[int, int]  # passes begun since the start, and samples given of the last one


@dataclass(frozen=True)
class Batch:
    """Some samples.

    Attributes:
        content: a tuple (arguments of the model, targets), or a dict of the model's keywords.
        size: how many samples it holds.
    """

    content: tuple[tuple[Any, ...], Any] | dict[str, Any]
    size: int

    def __getitem__(self, part: slice) -> Batch:
        """The samples of `part`, as views."""
        taken = range(self.size)[part]
        return Batch(map_tensors(lambda tensor: tensor[part], self.content), len(taken))

    def to(self, device: torch.device) -> Batch:
        """The same samples on `device`."""
        return Batch(map_tensors(lambda tensor: tensor.to(device), self.content), self.size)

    def outputs(self, model: nn.Module) -> Any:
        """What the model gives for these samples; says what it was given if it fails."""
        inputs = self.inputs
        try:
            return model(**inputs) if isinstance(inputs, dict) else run_model(model, inputs)
        except (ChitaError, torch.cuda.OutOfMemoryError):
            raise
        except (IndexError, RuntimeError, TypeError, ValueError) as error:
            given = " and ".join(
                f"of shape {tuple(tensor.shape)} ({tensor.dtype})" for tensor in tensors_of(inputs)
            )
            raise ChitaError(f"the model fails on inputs {given}: {error}") from error

    @property
    def inputs(self) -> tuple[Any, ...] | dict[str, Any]:
        """What the model is called with: arguments, or keywords."""
        return self.content if isinstance(self.content, dict) else self.content[0]

    def split(self, size: int) -> Iterator[Batch]:
        """Pieces of `size` samples, the last one possibly smaller."""
        return (self[start : start + size] for start in range(0, self.size, size))


class SampleStream:
    """The samples of `batches`, one after the other and round again.

    Args:
        batches: a list, a DataLoader or anything else that can be iterated more than once.
        seed: if given, a list or tuple is read in an order drawn from it.
    """

    def __init__(self, batches: Iterable[Any], seed: int | None = None) -> None:
        if not isinstance(batches, Iterable):
            raise ChitaError(
                "batches must be a list or a DataLoader of (inputs, targets) or of dicts, "
                f"got {_describe(batches)}"
            )
        if isinstance(batches, Iterator):
            raise ChitaError(
                f"batches is a {type(batches).__name__}, which can be read only once; "
                "pass a list or a DataLoader"
            )
        self.sample: Batch | None = None  # the first one that was ever read
        self._batches = batches
        self._order: list[int] | None = None
        if seed is not None and isinstance(batches, (list, tuple)):
            generator = torch.Generator().manual_seed(seed)
            self._order = torch.randperm(len(batches), generator=generator).tolist()
        self._waiting: Iterator[Batch] = iter(())
        self._rest: Batch | None = None
        self._place: Place = (0, 0)
        self._counted = 0
        self._counted_all = False
        self._held_out = 0

    def count(self, limit: int) -> int:
        """The number of samples the data hold beside those held out, counted up to `limit`."""
        wanted = limit + self._held_out
        if self._counted < wanted and not self._counted_all:
            self._counted = 0
            for batch in self._read():
                self._counted += batch.size
                if self._counted >= wanted:
                    break
            else:
                self._counted_all = True
        if not self._counted and self._counted_all:
            raise ChitaError("batches hold no samples")
        return min(self._counted, wanted) - self._held_out

    def hold_out(self, count: int, chunk: int) -> list[Batch]:
        """The first `count` samples, in pieces of `chunk`, which `take` then passes over.

        Data that come in another order each time they are read are passed over just the same, but
        then some of these samples turn up again.
        """
        self._rest, self._waiting = None, iter(())
        held = list(self.take(count, chunk))
        self._held_out = count
        self._place = (0, 0)  # the rest of this pass is where the stream starts
        return held

    @property
    def place(self) -> Place:
        """Where `take` goes on."""
        return self._place

    def seek(self, place: Place) -> None:
        """Go on from the `place` that another stream of the same data was at, not before this one.

        Data whose passes are all alike are read from the start of the last pass only. Others are
        read through, so that an order that is drawn anew for each pass is drawn as it was.
        """
        passes, given = place
        if passes and self._passes_are_alike():
            self._waiting, self._place = iter(()), (passes - 1, 0)
        while self._place[0] < passes:
            for _ in self._waiting:
                pass
            self._rest = self._next()
        self.skip(given - self._place[1])

    def first(self) -> Batch | None:
        """The first batch of each pass; None if there is none, or not the same one each time."""
        return next(self._read(), None) if self._passes_are_alike() else None

    def _passes_are_alike(self) -> bool:
        """Whether that is known: a DataLoader, say, may draw a new order, or augment."""
        data = self._batches
        if isinstance(data, Batches):
            return not data.shuffle and data.augment is None
        return isinstance(data, (list, tuple))

    def skip(self, count: int) -> None:
        """Pass over the next `count` samples."""
        while count:
            count -= self._cut(count).size

    def take(self, count: int, chunk: int, *, unit: int = 1) -> Iterator[Batch]:
        """The next `count` samples in pieces of `chunk`, the last one possibly smaller.

        Goes on where the last call stopped, and starts anew at the end of the data. At most one
        piece and one given batch are held at a time. Samples of different shapes are not joined:
        where the shape changes after whole units of `unit` samples, the piece ends.
        """
        while count > 0:
            piece = self._piece(min(chunk, count), unit)
            count -= piece.size
            yield piece

    def _piece(self, size: int, unit: int) -> Batch:
        parts: list[Batch] = []
        missing = size
        while missing:
            self._rest = self._rest or self._next()
            if parts and (size - missing) % unit == 0 and _differ_in_shape(self._rest, parts[0]):
                break
            parts.append(self._cut(missing))
            missing -= parts[-1].size
        return _join(parts)

    def _cut(self, most: int) -> Batch:
        """The next samples, at most so many, of one given batch."""
        batch = self._rest or self._next()
        part = batch[:most]
        self._rest = batch[most:] if batch.size > most else None
        passes, given = self._place
        self._place = (passes, given + part.size)
        return part

    def _next(self) -> Batch:
        batch = next(self._waiting, None)
        if batch is None:
            self._waiting = self._read()
            self._place = (self._place[0] + 1, 0)
            batch = self._after_held_out()
        if batch is None:
            raise ChitaError("batches hold no samples; a list or a DataLoader can be read again")
        return batch

    def _read(self) -> Iterator[Batch]:
        """One pass over the given batches, checked; those without samples are left out."""
        given: Iterable[tuple[int, Any]] = enumerate(self._batches)
        if self._order is not None:
            numbered = list(given)
            given = (numbered[i] for i in self._order)
        for number, content in given:
            batch = self.parse(number, content)
            if batch.size:
                if self.sample is None:  # a copy, which does not hold on to the rest of the batch
                    self.sample = Batch(map_tensors(Tensor.clone, batch[:1].content), 1)
                yield batch

    def parse(self, number: int, given: Any) -> Batch:
        """The samples of one given batch."""
        return parse_batch(number, given)

    def _after_held_out(self) -> Batch | None:
        """What is left of the first batch that is not wholly held out."""
        passed = 0
        for batch in self._waiting:
            passed += batch.size
            if passed > self._held_out:
                return batch[batch.size - (passed - self._held_out) :]
        return None


def first_sample(batches: Any) -> Batch | None:
    """One sample of data given to a method that needs none; None if it cannot be had."""
    try:
        stream = SampleStream(batches)
        next(stream._read(), None)
    except ChitaError:
        return None
    return stream.sample


def _differ_in_shape(one: Batch, other: Batch) -> bool:
    """Whether two batches of the same structure have samples of different shapes."""
    first, second = (_sorted_by_key(batch.content) for batch in (one, other))
    shapes, others = ([t.shape[1:] for t in tensors_of(nest)] for nest in (first, second))
    return type(first) is type(second) and len(shapes) == len(others) and shapes != others


def _sorted_by_key(content: Any) -> Any:
    return dict(sorted(content.items())) if isinstance(content, dict) else content


def map_tensors(function: Callable[[Tensor], Any], nest: Any) -> Any:
    """`nest` (of tuples, lists and dicts) with `function` applied to its tensors."""
    if isinstance(nest, Tensor):
        return function(nest)
    if isinstance(nest, Mapping):
        return {key: map_tensors(function, value) for key, value in nest.items()}
    if isinstance(nest, (tuple, list)):
        return tuple(map_tensors(function, value) for value in nest)
    return nest


def tensors_of(nest: Any) -> list[Tensor]:
    """The tensors of a nest, in order."""
    found: list[Tensor] = []
    map_tensors(found.append, nest)
    return found


def parse_batch(number: int, given: Any) -> Batch:
    """What the user gave as batch `number`, checked; one that was parsed before stays as it is."""
    if isinstance(given, Batch):
        return given
    content: tuple[tuple[Any, ...], Any] | dict[str, Any]
    if isinstance(given, Mapping):
        content = dict(given)
    elif isinstance(given, (tuple, list)) and len(given) == 2:
        inputs, targets = given
        content = (tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,), targets)
        for role, nest in (("inputs", inputs), ("targets", targets)):
            if not tensors_of(nest):
                raise ChitaError(f"batch {number}: {role} hold no tensor, got {_describe(nest)}")
    else:
        raise ChitaError(
            f"batch {number} must be a pair (inputs, targets) or a dict, got {_describe(given)}"
        )
    return Batch(content, sample_count(number, content))


def sample_count(number: int, content: Any) -> int:
    """How many samples the tensors of given batch `number` hold."""
    shapes = [tuple(tensor.shape) for tensor in tensors_of(content)]
    if len({shape[:1] for shape in shapes}) != 1 or () in shapes:
        raise ChitaError(
            f"batch {number}: every tensor must hold the same number of samples in dimension 0, "
            f"got the shapes {', '.join(map(str, shapes)) or 'of no tensor at all'}"
        )
    return shapes[0][0]


def _join(parts: list[Batch]) -> Batch:
    """The samples of all parts in one batch; what is not a tensor is taken from the first."""
    if len(parts) == 1:
        return parts[0]
    try:
        content = _concatenate([part.content for part in parts])
    except (KeyError, RuntimeError, TypeError, ValueError) as error:
        raise ChitaError(
            "batches cannot be joined, since their samples differ; pad them to one shape, or give "
            f"batches whose size is a multiple of the one asked for ({error})"
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


def _describe(given: Any) -> str:
    if isinstance(given, (tuple, list)):
        return f"a {type(given).__name__} of {len(given)}"
    if isinstance(given, Tensor):
        return f"a tensor of shape {tuple(given.shape)}"
    return f"a {type(given).__name__}"
