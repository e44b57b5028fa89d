"""Fingerprints: hashes of tensors and of data sets, to compare the inputs of two runs."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

from chita.model.samples.batch import tensors_of

MOST_COMPARED = 20_000  # samples of a data set that must be read, or decoded, one by one

BATCH = 32  # samples that are read at a time from a loader without a batch size


@runtime_checkable
class Fingerprinted(Protocol):
    """Data that compute their own fingerprint, as those of chita do."""

    def fingerprint(self) -> str | None: ...


def fingerprint(named: Iterable[tuple[str | int, Tensor]]) -> str:
    """Return a hash of the names, data types, shapes and values of tensors."""
    found = hashlib.sha256()
    for name, tensor in named:
        found.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        values = tensor.detach().cpu().reshape(-1).contiguous()  # a column has gaps
        found.update(values.view(torch.uint8).numpy().data)
    return found.hexdigest()[:16]


def batches_fingerprint(batches: Iterable[Any]) -> str:
    """Return a hash of all tensors of some batches, in their order."""
    return fingerprint(
        (f"{number} {index}", tensor)
        for number, batch in enumerate(batches)
        for index, tensor in enumerate(tensors_of(batch))
    )


def loader_fingerprint(loader: DataLoader[Any]) -> str | None:
    """Return a hash of the samples of an indexed data set, whose order does not depend on a loader.

    Of a data set with more than `MOST_COMPARED` samples, that many at equal distances are read,
    unless its tensors are in memory. The result is None if the first samples differ when they are
    read again, as with random augmentation. The loader's own generator is not used.
    """
    data: Any = loader.dataset
    if isinstance(data, TensorDataset):
        return fingerprint(enumerate(data.tensors))
    count = len(data)
    chosen = places_to_compare(count).tolist()
    first = chosen[: _batch_size(loader)]
    if len({batches_fingerprint(read_chosen(loader, first)) for _ in range(2)}) > 1:
        return None
    return f"{count} {batches_fingerprint(read_chosen(loader, chosen))}"


def places_to_compare(samples: int) -> Tensor:
    """Return the indices of at most `MOST_COMPARED` samples, at equal distances."""
    count = min(samples, MOST_COMPARED)
    return torch.linspace(0, samples - 1, count, dtype=torch.float64).round().long()


def read_chosen(
    loader: DataLoader[Any], chosen: list[int], *, workers: int | None = None
) -> DataLoader[Any]:
    """Return a loader of these samples, in this order; by default with as many workers."""
    size = _batch_size(loader)
    options: dict[str, Any] = {"batch_size": None, "sampler": chosen}
    if loader.batch_sampler is not None:
        options = {"batch_sampler": [chosen[i : i + size] for i in range(0, len(chosen), size)]}
    return DataLoader(
        loader.dataset,
        collate_fn=loader.collate_fn,
        num_workers=loader.num_workers if workers is None else workers,
        worker_init_fn=loader.worker_init_fn,
        multiprocessing_context=loader.multiprocessing_context if workers != 0 else None,
        generator=torch.Generator(),  # the workers' seeds would come from the global one
        **options,
    )


def _batch_size(loader: DataLoader[Any]) -> int:
    """Return the batch size of a loader; a sampler of batches may vary its own."""
    return loader.batch_size or BATCH
