"""Check that the ranks of a run have the same options, model and samples, or take rank 0's.

Ranks that start from different values would end with different models. Training with
DistributedDataParallel leaves such differences: each rank has batch norm statistics of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from chita.errors import ChitaError
from chita.methods import methods_where
from chita.model.samples.batch import Batch, map_tensors, tensors_of
from chita.model.samples.fingerprint import fingerprint
from chita.model.weights import Weights
from chita.pruning.calibration import Calibration
from chita.pruning.config import PruneConfig
from chita.pruning.supports import Supports
from chita.solver.problem import NOT_SHARED
from chita.solver.ranks import ALONE, Ranks

NAMED = 5  # the most differences of a rank in a message
OTHER_SAMPLES = (
    "give all ranks the same batches in the same order, without a DistributedSampler, or give "
    "sync=True to take the held-out samples of rank 0"
)


def agreed_ranks(ranks: Ranks, config: PruneConfig, supports: Supports, *, n: int) -> Ranks:
    """Return the ranks that share A; without gradients, each rank does all the work.

    Args:
        ranks: all ranks.
        config: the options of the run.
        supports: the supports that the run allows.
        n: the rows of A.

    Raises:
        ChitaError: the ranks cannot share A.
    """
    method, size = config.resolve_method(), ranks.size
    if size == 1 or not method.measures_weights:
        return ALONE
    if not method.shares_columns:
        raise ChitaError(
            f"method {method.name!r} runs in one process, but there are {size} ranks; "
            f"{methods_where(lambda method: method.shares_columns)} share the work"
        )
    if not supports.any:
        raise ChitaError(NOT_SHARED.format(size))
    if n < size:
        raise ChitaError(f"samples={n} rows are too few for {size} ranks")
    return ranks


def agree_on_options(ranks: Ranks, options: Mapping[str, Any]) -> None:
    """Raise a ChitaError that names the options that differ between the ranks."""
    if ranks.size > 1:
        _check_same(ranks, options, "give all ranks the same arguments")


def agree_on_model(ranks: Ranks, model: nn.Module, *, sync: bool, role: str = "") -> None:
    """Compare all parameters and buffers between the ranks, or copy those of rank 0.

    Args:
        ranks: all ranks.
        model: the model of this rank.
        sync: whether to copy; names, shapes and types must be the same in any case.
        role: what to call the model in messages, such as "teacher".

    Raises:
        ChitaError: the ranks differ; the message names the tensors.
    """
    if ranks.size == 1:
        return
    tensors = {
        " ".join(filter(None, (role, kind, name))): tensor
        for kind, named in (
            ("parameter", model.named_parameters()),
            ("buffer", model.named_buffers()),
        )
        for name, tensor in named
    }
    shapes = {name: f"{t.dtype} {tuple(t.shape)}" for name, t in tensors.items()}
    _check_same(ranks, shapes, "give all ranks the same network")
    if sync:
        copy_from_first(ranks, list(tensors.values()))
        return
    _check_same(
        ranks,
        {name: fingerprint([(name, tensor)]) for name, tensor in tensors.items()},
        "load the same weights on all ranks, or give sync=True to take those of rank 0",
        hashes=True,
    )


def agree_on_calibration(
    ranks: Ranks, data: Calibration, config: PruneConfig, *, shared: bool
) -> Calibration:
    """Return the samples of the run, of which the held-out ones are the same on all ranks.

    Ranks may give different rows to A, because all of them solve with the same A.

    Args:
        ranks: all ranks.
        data: the samples of this rank.
        config: the options of the run. With `sync`, the numbers and the held-out samples are those
            of rank 0, which no other rank uses for its rows or its training.
        shared: whether the ranks share A; otherwise all samples must be the same.

    Raises:
        ChitaError: the ranks differ; the message names what differs.
    """
    if ranks.size == 1:
        return data
    if config.sync:
        rows, batch, at_once = ranks.from_first(lambda: (data.rows, data.batch, data.at_once))
        choosing, measuring = (
            batches_from_first(ranks, batches) for batches in (data.held_out, data.measured)
        )
        if ranks.rank > 0 and (choosing or measuring):
            data.stream.exclude([*choosing, *measuring], unit=batch)
        return replace(
            data, rows=rows, batch=batch, at_once=at_once, held_out=choosing, measured=measuring
        )
    _check_same(ranks, {"n": data.rows, "batch": data.batch}, OTHER_SAMPLES)
    parts = {"held-out samples": data.held_out, "samples to measure on": data.measured}
    labelled = not config.distills
    found = {
        f"the content of the {name}": sample_fingerprint(part, labelled=labelled)
        for name, part in parts.items()
    }
    if data.rows and not shared:
        stage = data.stream.restarted().pieces(data.rows * data.batch, data.batch)
        own = sample_fingerprint(stage, labelled=labelled)
        found["the content of the calibration samples"] = own
    _check_same(ranks, found, OTHER_SAMPLES, hashes=True)
    return data


def agree_on_held_out(
    ranks: Ranks, held: list[Batch], *, labelled: bool, sync: bool
) -> list[Batch]:
    """Return held-out samples that are the same on all ranks: compared, or those of rank 0."""
    if ranks.size == 1:
        return held
    if sync:
        return batches_from_first(ranks, held)
    found = {"the content of the held-out samples": sample_fingerprint(held, labelled=labelled)}
    _check_same(ranks, found, OTHER_SAMPLES, hashes=True)
    return held


def agree_on_weights(ranks: Ranks, weights: Weights, *, sync: bool) -> Weights:
    """Return the weights that the gradients of rank 0 reach, if ranks have different samples."""
    if ranks.size == 1:
        return weights
    names = [weight.name for weight in weights]
    first = ranks.from_first(lambda: names)
    if not sync:
        _check_same(ranks, {"the weights to prune": names}, "give all ranks the same batches")
    return weights if names == first else weights.only(first)


def agree_on_masks(ranks: Ranks, weights: Weights, kept: Tensor, *, sync: bool) -> None:
    """Compare the supports of weights, (p,) bool, or replace them by those of rank 0, in place."""
    if ranks.size == 1:
        return
    if sync:
        copy_from_first(ranks, [kept])
        return
    masks = {f"the mask of {k}": fingerprint([(k, m)]) for k, m in weights.split(kept).items()}
    remedy = "give all ranks the same masks, or give sync=True to take those of rank 0"
    _check_same(ranks, masks, remedy, hashes=True)


@torch.no_grad()
def copy_from_first(ranks: Ranks, tensors: Sequence[Tensor]) -> None:
    """Replace the values of tensors by those of rank 0, bit for bit."""
    if ranks.size == 1:
        return
    for tensor in tensors:
        # Not every backend transports every type, but all transport bytes.
        values = tensor.detach().reshape(-1).contiguous()
        sent = ranks.broadcast(values.view(torch.uint8), 0)
        tensor.copy_(sent.view(tensor.dtype).view(tensor.shape))


def batches_from_first(ranks: Ranks, batches: list[Batch]) -> list[Batch]:
    """Return the batches of rank 0."""

    def own() -> list[Batch]:
        # A view would be sent with the memory of all samples.
        here = (batch.to(torch.device("cpu")) for batch in batches)
        return [Batch(map_tensors(Tensor.clone, batch.content), batch.size) for batch in here]

    return ranks.from_first(own)


def sample_fingerprint(batches: Iterable[Batch], *, labelled: bool) -> str:
    """Return a hash of the samples, in order, and of their division into batches.

    Args:
        batches: the samples.
        labelled: whether their targets are given; outputs of the dense network may be rounded in
            another way on another device.
    """
    parts = (batch.content if labelled else batch.inputs for batch in batches)
    return fingerprint(enumerate(chain.from_iterable(map(tensors_of, parts))))


def _check_same(ranks: Ranks, own: Mapping[str, Any], remedy: str, *, hashes: bool = False) -> None:
    """Raise the same ChitaError on all ranks if some values differ from those of rank 0.

    Args:
        ranks: all ranks.
        own: the values of this rank by name.
        remedy: what would work.
        hashes: whether the values are hashes, which a message does not show.
    """
    first = ranks.from_first(lambda: dict(own))
    names = [*first, *(name for name in own if name not in first)]
    differences = [
        f"{name} differs between rank 0 and rank {ranks.rank}"
        if hashes
        else f"{name} is {first.get(name)!r} on rank 0, {own.get(name)!r} on rank {ranks.rank}"
        for name in names
        if own.get(name) != first.get(name)
    ]
    if len(differences) > NAMED:
        differences[NAMED:] = [f"{len(differences) - NAMED} more differ"]
    text = "; ".join(differences) + "; " if differences else ""
    everyone = ranks.gather(torch.tensor(list(text.encode()), dtype=torch.uint8))
    if len(everyone):
        found = bytes(everyone.tolist()).decode()
        raise ChitaError(f"the ranks differ: {found}{remedy}")
