"""Ranks: the processes that share the rows and columns of A, one alone or by `torch.distributed`.

Every rank calls the same reductions in the same order. A rank that fails stores its error for the
others and closes its connections, so that they raise that error instead of waiting.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from itertools import pairwise
from typing import Any, TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor

from chita.errors import ChitaError

Made = TypeVar("Made")


class Ranks:
    """A single process, which has all rows and columns."""

    rank: int = 0
    size: int = 1

    def sum(self, tensor: Tensor) -> Tensor:
        """Return the sum of the ranks' tensors, on every rank."""
        return tensor

    def max(self, tensor: Tensor) -> Tensor:
        """Return the elementwise maximum of the ranks' tensors."""
        return tensor

    def gather(self, tensor: Tensor) -> Tensor:
        """Concatenate the ranks' tensors along dimension 0, in which their sizes may differ."""
        return tensor

    def broadcast(self, tensor: Tensor, source: int) -> Tensor:
        """Return the tensor of the rank `source`; all ranks pass one of the same shape."""
        return tensor

    def exchange(self, given: Tensor, bounds: Sequence[int], counts: Sequence[int]) -> list[Tensor]:
        """Exchange rows for columns: each rank gives its rows and gets its columns of all rows.

        Args:
            given: (p, counts[rank]), the rows of this rank.
            bounds: rank r has the columns [bounds[r], bounds[r + 1]), p = bounds[-1].
            counts: the number of rows of each rank.

        Returns:
            For every rank, its rows of this rank's columns, (columns, count).
        """
        return [given]

    def from_first(self, make: Callable[[], Made]) -> Made:
        """Return the object that rank 0 makes, on every rank."""
        return make()

    def total(self, count: int) -> int:
        """Return the sum of the ranks' counts."""
        return count if self.size == 1 else int(self.sum(torch.tensor(count)))

    def least(self, count: int) -> int:
        """Return the least of the ranks' counts."""
        return count if self.size == 1 else -int(self.max(torch.tensor(-count)))

    def before(self, count: int) -> int:
        """Return the sum of the counts of the ranks before this one."""
        if self.size == 1:
            return 0
        return int(self.gather(torch.tensor([count]))[: self.rank].sum())

    def all(self, holds: bool) -> bool:
        """Return whether a condition holds on every rank."""
        return holds if self.size == 1 else not self.total(not holds)


ALONE = Ranks()


TIMEOUT = timedelta(minutes=10)  # the longest time that a rank waits for the others
PATIENCE = 5.0  # seconds to wait for the error of a rank whose connection is closed
FAILED = "failed"  # the key of the first error in the store


@contextmanager
def joined_ranks() -> Iterator[Ranks]:
    """Join all ranks of the process group, or a single one if there is no group.

    All ranks of the group must call this.

    Raises:
        ChitaError: another rank failed; the message is its error.
    """
    if not (dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1):
        yield ALONE
        return
    # A separate group: closing it does not affect the user's group.
    try:
        ranks = ProcessRanks(dist.new_group(timeout=TIMEOUT))
    except RuntimeError as error:
        raise ChitaError(_silence(error)) from error
    try:
        ranks.total(0)  # wait until all ranks are connected, before any of them can end
        yield ranks
    except BaseException as error:
        ranks.store_error(error)
        raise
    finally:
        ranks.close()


class ProcessRanks(Ranks):
    """The ranks of a process group."""

    def __init__(self, group: Any) -> None:
        self._group = group
        self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)
        on_gpu = dist.get_backend(group) == "nccl"
        gpu = f"cuda:{torch.cuda.current_device()}" if on_gpu else "cpu"
        self._device = torch.device(gpu)
        default = dist.distributed_c10d._get_default_store()
        prefix = f"chita/{group.group_name}"
        self._store = dist.PrefixStore(prefix, default)  # type: ignore[attr-defined]

    def sum(self, tensor: Tensor) -> Tensor:
        return self._reduce(tensor, dist.ReduceOp.SUM)

    def max(self, tensor: Tensor) -> Tensor:
        return self._reduce(tensor, dist.ReduceOp.MAX)

    def gather(self, tensor: Tensor) -> Tensor:
        sizes = torch.zeros(self.size, dtype=torch.int64)
        sizes[self.rank] = len(tensor)
        lengths = self.sum(sizes).tolist()
        padded = tensor.new_zeros((max(lengths), *tensor.shape[1:]))
        padded[: len(tensor)] = tensor
        mine = self._carried(padded)
        found = [torch.empty_like(mine) for _ in lengths]
        self._call(lambda: dist.all_gather(found, mine, group=self._group))
        parts = zip(found, lengths, strict=True)
        return torch.cat([part[:length] for part, length in parts]).to(tensor.device)

    def broadcast(self, tensor: Tensor, source: int) -> Tensor:
        carried = self._carried(tensor)
        first = dist.get_global_rank(self._group, source)
        self._call(lambda: dist.broadcast(carried, first, group=self._group))
        return carried.to(tensor.device)

    def exchange(self, given: Tensor, bounds: Sequence[int], counts: Sequence[int]) -> list[Tensor]:
        columns = bounds[self.rank + 1] - bounds[self.rank]
        sent = [(stop - start) * counts[self.rank] for start, stop in pairwise(bounds)]
        received = [columns * count for count in counts]
        mine = given.to(self._device).flatten().contiguous()
        found = mine.new_empty(sum(received))
        self._call(lambda: dist.all_to_all_single(found, mine, received, sent, group=self._group))
        parts = zip(torch.split(found, received), counts, strict=True)
        return [part.view(columns, count).to(given.device) for part, count in parts]

    def from_first(self, make: Callable[[], Made]) -> Made:
        box = [make() if self.rank == 0 else None]
        first = dist.get_global_rank(self._group, 0)
        self._call(lambda: dist.broadcast_object_list(box, first, group=self._group))
        made: Any = box[0]
        return cast(Made, made)

    def store_error(self, error: BaseException) -> None:
        """Store this rank's error for the others, unless another rank stored one before."""
        kind = "" if isinstance(error, ChitaError) else f"{type(error).__name__}: "
        message = f"rank {self.rank} failed: {kind}{error}"
        try:
            self._store.compare_set(FAILED, "", message)
        except Exception:  # the rank that holds the store has ended
            return

    def close(self) -> None:
        """Close the connections, so that ranks that wait for this one stop waiting."""
        group, self._group = self._group, None
        dist.destroy_process_group(group)

    def _reduce(self, tensor: Tensor, operation: Any) -> Tensor:
        carried = self._carried(tensor)
        self._call(lambda: dist.all_reduce(carried, operation, group=self._group))
        return carried.to(tensor.device)

    def _carried(self, tensor: Tensor) -> Tensor:
        """Return a copy on the device of the group: this rank's GPU for NCCL, else main memory."""
        return tensor.detach().to(self._device, copy=True).contiguous()

    def _call(self, collective: Callable[[], Any]) -> None:
        try:
            collective()
        except RuntimeError as error:
            raise ChitaError(self._first_failure() or _silence(error)) from error

    def _first_failure(self) -> str | None:
        """Return the error of the first rank that failed; None if it stored none in time."""
        waited = time.monotonic() + PATIENCE
        while time.monotonic() < waited:
            try:
                if self._store.check([FAILED]):
                    return str(self._store.get(FAILED).decode())
            except RuntimeError:  # the rank that holds the store has ended
                return None
            time.sleep(0.05)
        return None


def _silence(error: Exception) -> str:
    return (
        "another rank ended without an error, or did not respond within "
        f"{TIMEOUT.total_seconds():.0f} s: all ranks must call chita.prune "
        f"({str(error).split('. ')[0]})"
    )
