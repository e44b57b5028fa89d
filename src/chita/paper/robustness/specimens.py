"""The networks of `chita bench robustness`: from the zoo, modified copies, and small ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from chita.files.checkpoint import load_checkpoint, save_checkpoint
from chita.paper.networks import Subject
from chita.paper.robustness.networks import (
    DepthwiseNet,
    SequenceTransformer,
    VisionTransformer,
    signal_net,
    tanh_net,
)
from chita.paper.robustness.rescale import fold_batch_norm, rescale
from chita.paper.robustness.tasks import (
    BATCH,
    Task,
    digits,
    in_batches,
    sequences,
    shuffled,
    signals,
    train_small,
)

MLPNET_PAIRS = (("fc1", "fc2"),)
RESNET20_PAIRS = tuple(  # the residual stream keeps its scale
    (f"layer{stage}.{block}.conv1", f"layer{stage}.{block}.conv2")
    for stage in (1, 2, 3)
    for block in (0, 1, 2)
)


@dataclass(frozen=True)
class Specimen:
    """A trained network with its data, ready to be pruned.

    Attributes:
        name: the name in keys and tables.
        model: returns a new copy of the trained network, given a seed.
        calibration: returns the calibration batches in random order, given a seed.
        test: returns the test batches.
        sparsities: the sparsities to prune to, at which the methods differ.
        include: glob patterns of the prunable parameters; None for the default of chita.prune.
        settings: other arguments of chita.prune.
        rescaled_from: the name of the original if this specimen is a rescaled copy.
    """

    name: str
    model: Callable[[int], nn.Module]
    calibration: Callable[[int], Iterable[Any]]
    test: Callable[[], Iterable[Any]]
    sparsities: Sequence[float]
    include: tuple[str, ...] | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    rescaled_from: str | None = None


@dataclass(frozen=True)
class Small:
    """A small network that the benchmark trains itself."""

    name: str
    build: Callable[[], nn.Module]
    task: Callable[[], Task]
    epochs: int
    sparsities: Sequence[float]


SMALL = (
    Small("transformer", SequenceTransformer, sequences, 5, (0.6, 0.8)),
    Small("vit", VisionTransformer, digits, 4, (0.6, 0.8)),
    Small("depthwise", DepthwiseNet, digits, 2, (0.6, 0.8)),
    Small("tanh", tanh_net, digits, 4, (0.8, 0.9)),
    Small("signals", signal_net, signals, 6, (0.6, 0.8)),
)


def find_specimens(subjects: Mapping[str, Subject]) -> dict[str, Specimen]:
    """Return all available networks by name.

    Args:
        subjects: the networks of the zoo with available trained weights; the others and their
            modified copies are left out.
    """
    found: list[Specimen] = []
    for name, subject in subjects.items():
        if subject.network.name == "mlpnet":
            whole = _of_zoo(subject, (0.9, 0.95))
            found += [whole, _rescaled(whole, MLPNET_PAIRS)]
        elif name == "resnet20":
            whole = _of_zoo(subject, (0.7, 0.8))
            folded = _folded(whole)
            found += [whole, folded, _rescaled(folded, RESNET20_PAIRS)]
        elif name == "mobilenetv1-folded":
            whole = _of_zoo(subject, (0.5, 0.7))
            found.append(replace(whole, settings={"batch": 1}))  # it has few images
    first = next(iter(subjects.values()))
    found += [_trained(small, first.device, first.cache) for small in SMALL]
    return {specimen.name: specimen for specimen in found}


def _of_zoo(subject: Subject, sparsities: Sequence[float]) -> Specimen:
    return Specimen(
        subject.name,
        subject.model,
        subject.calibration,
        lambda: subject.test,
        sparsities,
        subject.network.prunable,
    )


def _folded(whole: Specimen) -> Specimen:
    def model(seed: int) -> nn.Module:
        made = whole.model(seed)
        fold_batch_norm(made)
        return made

    return replace(whole, name=f"{whole.name}-folded", model=model)


def _rescaled(whole: Specimen, pairs: Sequence[tuple[str, str]]) -> Specimen:
    def model(seed: int) -> nn.Module:
        made = whole.model(seed)
        rescale(made, pairs)
        return made

    name = f"{whole.name}-rescaled"
    return replace(whole, name=name, model=model, rescaled_from=whole.name)


def _trained(small: Small, device: torch.device, folder: Path) -> Specimen:
    def calibration(seed: int) -> Iterable[Any]:
        generator = torch.Generator().manual_seed(seed)
        return in_batches(shuffled(small.task().train, generator), BATCH, device)

    return Specimen(
        small.name,
        lambda _: trained_network(small, folder).to(device),
        calibration,
        lambda: in_batches(small.task().test, BATCH, device),
        small.sparsities,
    )


def trained_network(small: Small, folder: Path) -> nn.Module:
    """Return the trained network; train it once and then read it from `folder`."""
    model, file = small.build(), folder / f"{small.name}.safetensors"
    if file.exists():
        load_checkpoint(model, file)
        return model.eval()
    train_small(model, small.task().train, small.epochs)
    folder.mkdir(parents=True, exist_ok=True)
    save_checkpoint(model, file)
    return model
