"""ImageNet: one-shot pruning and `auto` on trained networks, with a few images of each class.

Every method has the same calibration images. A tenth of them is held out from all methods: after
pruning, the statistics of batch norm are re-estimated and kept if the loss on these images falls.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from chita.data import Batches
from chita.errors import ChitaError
from chita.model.accuracy import accuracy
from chita.model.batch_norm import reestimate_batch_norm
from chita.model.layers import batch_norm_layers
from chita.model.losses import mean_loss
from chita.paper.benchmark import Bench
from chita.paper.cells import Cell, Record
from chita.paper.imagenet_layout import draw_imagenet, imagenet_rows, imagenet_text
from chita.paper.method_tables import DENSE
from chita.paper.networks import Subject
from chita.paper.settings import recovery_key, version_key
from chita.paper.timed_prune import timed_prune
from chita.paper.write import Report
from chita.pruning.recovery.snapshot import Snapshot
from chita.report.published import EMBEDDED

SPARSITIES = (0.5, 0.6, 0.7, 0.8, 0.9, "2:4", "1:4")
# Rows of A: ResNet50 has the paper's number, which takes 51 GB.
SAMPLES = {"resnet50": 500, "mobilenetv1-folded": 1000}
# The blocks of WoodFisher: the factors of its paper's 2000 would take 204 GB for ResNet50.
WOODFISHER_BLOCKS = {"resnet50": 500}
HELD_OUT = 10  # one of so many calibration images is held out
BATCH = 64  # images in a batch
WOODFISHER = "WoodFisher"
_SOLVED: dict[str, Any] = {"batch": 1, "first_order": False, "block_size": 10_000}
ARGUMENTS: dict[str, dict[str, Any]] = {  # of chita.prune, by the name in the table
    "magnitude": {"method": "magnitude"},
    "LAMP": {"method": "lamp"},
    WOODFISHER: {"method": "woodfisher", **_SOLVED, "block_size": 2000},
    "M-FAC": {"method": "m-fac", **_SOLVED},
    "CHITA": {"method": "chita-bso", **_SOLVED},
    "CHITA++": {"method": "chita++", **_SOLVED},
    "auto, recover=False": {"method": "auto", "recover": False},
    "auto": {"method": "auto"},
}
_QUICK: dict[str, Any] = {"batch": 1, "first_order": False, "samples": 200}
QUICK_ARGUMENTS: dict[str, dict[str, Any]] = {
    "magnitude": {"method": "magnitude"},
    "CHITA": {"method": "chita-bso", **_QUICK},
    "auto": {"method": "auto", "budget": "40 steps"},
}


@dataclass(frozen=True)
class ImageNetBench:
    """All methods on the networks of ImageNet, one cell for each network, method and sparsity.

    Attributes:
        networks: the names of the networks, with the rows of A for the methods that need it.
        sparsities: the sparsities, or patterns such as "2:4".
        methods: the arguments of chita.prune for each method, by name.
        images: the most calibration images.
    """

    networks: Mapping[str, int] = field(default_factory=lambda: SAMPLES)
    sparsities: Sequence[float | str] = SPARSITIES
    methods: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: ARGUMENTS)
    images: int = 2000

    def cells(self, bench: Bench) -> list[Cell]:
        """Return the cells seed by seed; the dense network comes before its pruned copies."""
        found = [name for name in self.networks if name in bench.subjects]
        if not found:
            raise ChitaError(
                f"this benchmark needs --imagenet and the weights of {' or '.join(self.networks)}: "
                f"run `chita weights get {next(iter(self.networks))}` first"
            )
        return [
            cell
            for seed in range(bench.seeds)
            for name in found
            for cell in self._of_network(bench.subjects[name], seed)
        ]

    def _of_network(self, subject: Subject, seed: int) -> list[Cell]:
        dense = Cell(_key(subject, DENSE, 0.0, seed), lambda: _tested(subject, subject.model(seed)))
        return [
            dense,
            *(
                self._cell(subject, name, sparsity, seed)
                for sparsity in self.sparsities
                for name in self.methods
            ),
        ]

    def _cell(self, subject: Subject, name: str, sparsity: float | str, seed: int) -> Cell:
        arguments = dict(self.methods[name])
        method = str(arguments["method"])
        if "batch" in arguments:
            arguments.setdefault("samples", self.networks[subject.name])
        if name == WOODFISHER and subject.name in WOODFISHER_BLOCKS:
            arguments["block_size"] = WOODFISHER_BLOCKS[subject.name]
        key = {
            **_key(subject, name, sparsity, seed),
            "arguments": arguments,
            "images": self.images,
            **version_key(method),
            **recovery_key(arguments),
        }

        def compute() -> dict[str, Any]:
            given, held_out = calibration(subject, self.images, seed)
            model = subject.model(seed)
            result, seconds = timed_prune(
                model,
                given,
                sparsity=sparsity,
                include=subject.network.prunable,
                seed=seed,
                **arguments,
            )
            return {
                "batch_norm": repaired_batch_norm(model, given, held_out),
                **_tested(subject, model),
                "seconds": seconds,
                "sparsity": result.sparsity,
                "training_steps": result.training_steps,
            }

        return Cell(key, compute)

    def report(self, records: Sequence[Record]) -> Report:
        rows = imagenet_rows(records)
        return Report(
            title="ImageNet: accuracy of pruned networks, in percent",
            rows=rows,
            text=imagenet_text(rows),
            draw=lambda figure: draw_imagenet(figure, rows),
        )


QUICK = ImageNetBench({EMBEDDED: 200}, (0.95, "2:4"), QUICK_ARGUMENTS, images=600)


def _key(subject: Subject, method: str, sparsity: float | str, seed: int) -> dict[str, Any]:
    return {
        "bench": "imagenet",
        "network": subject.name,
        "row": method,
        "sparsity": sparsity,
        "seed": seed,
    }


def _tested(subject: Subject, model: nn.Module) -> dict[str, Any]:
    return {"accuracy": accuracy(model, subject.test), "test_images": len(subject.splits.test)}


def calibration(
    subject: Subject, images: int, seed: int
) -> tuple[list[tuple[Tensor, Tensor]], list[tuple[Tensor, Tensor]]]:
    """Return the batches for a method, and those of the images that are held out from it."""
    shuffled = subject.splits.train.shuffled(seed)
    batches = list(Batches(shuffled, BATCH, limit=images, device=subject.device))
    inputs, labels = (torch.cat(parts) for parts in zip(*batches, strict=True))
    held_out = torch.arange(len(labels), device=labels.device) % HELD_OUT == 0
    return _cut(inputs[~held_out], labels[~held_out]), _cut(inputs[held_out], labels[held_out])


def _cut(inputs: Tensor, labels: Tensor) -> list[tuple[Tensor, Tensor]]:
    return list(zip(torch.split(inputs, BATCH), torch.split(labels, BATCH), strict=True))


def repaired_batch_norm(
    model: nn.Module,
    batches: list[tuple[Tensor, Tensor]],
    held_out: list[tuple[Tensor, Tensor]],
) -> str | None:
    """Re-estimate batch norm on the batches, and keep it if the held-out loss falls.

    Returns:
        "re-estimated" or "kept"; None for a network without batch norm.
    """
    if not batch_norm_layers(model):
        return None
    before, loss = Snapshot(model), mean_loss(model, held_out)
    reestimate_batch_norm(model, batches)
    if mean_loss(model, held_out) < loss:
        return "re-estimated"
    before.restore()
    return "kept"
