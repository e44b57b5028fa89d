"""The layout of `chita bench imagenet`: a table and a panel of the figure for each network."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING

from chita.paper.cells import Record
from chita.paper.method_tables import DENSE, by_network
from chita.paper.panels import draw_panels
from chita.paper.write import Row, as_markdown
from chita.report import published as paper

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# The methods of tab:accuracy, and the network there that is closest to ours.
PAPER_METHODS = {
    "magnitude": "magnitude",
    "WoodFisher": "woodfisher",
    "CHITA": "chita-bso",
    "CHITA++": "chita++",
}
PAPER_NETWORKS = {"mobilenetv1-folded": "mobilenetv1", "resnet50": "resnet50"}
EXPLANATION = """\
Top-1 accuracy on the test images. All methods have the same calibration images; auto has its
default options, with and without recovery, and the other methods do not train. A tenth of the
calibration images is held out from all methods: after pruning, the statistics of batch norm are
re-estimated on the others, and kept if the loss on the held-out images falls. Seconds are those of
the call of chita.prune with the images in memory.

The standard error in brackets is that of the test images, sqrt(a (1 - a) / N) for the accuracy a on
N images. Methods are tested on the same images, so the standard error of a difference between two
of them is smaller than both errors suggest."""
DIFFERENCES = {
    "mobilenetv1-folded": """\
The column "paper" is tab:accuracy: another checkpoint (with batch norm, dense 71.95), 16,000
calibration images of the training set (n = 1000, m = 16; 960,000 for WoodFisher), 100 stages of
CHITA++, and the whole validation set of 50,000 images. Ours has batch norm folded into biases and
was trained with weights of 8 bits.""",
    "resnet50": """\
The paper states no figures for one-shot pruning of ResNet50, only fig:resnet50_acc: another
checkpoint (dense 77.01), n = 500, and the whole validation set. After gradual pruning with 100
epochs of training on all of ImageNet it reports 75.29 at 0.9. Ours is the ResNet50 of Keras.""",
}


def imagenet_rows(records: Sequence[Record]) -> list[Row]:
    """Return a row for each network, sparsity and method: means over the seeds."""
    groups: dict[tuple[str, float | str, str], list[Record]] = {}
    for record in records:
        key = record["key"]
        groups.setdefault((key["network"], key["sparsity"], key["row"]), []).append(record)
    return [_row(*place, found) for place, found in groups.items()]


def _row(network: str, sparsity: float | str, method: str, found: Sequence[Record]) -> Row:
    mean = statistics.mean(record["accuracy"] for record in found)
    images = found[0]["test_images"]
    return {
        "network": network,
        "sparsity": sparsity,
        "method": method,
        "accuracy": mean,
        "standard_error": error_of_test(mean, images),
        "paper": _published(network, method, sparsity),
        "batch_norm": "/".join(sorted({record.get("batch_norm") or "-" for record in found})),
        "seconds": _mean(found, "seconds"),
        "training_steps": _mean(found, "training_steps"),
        "test_images": images,
        "seeds": len(found),
    }


def error_of_test(accuracy: float, images: int) -> float:
    """Return the standard error of an accuracy in percent on so many test images."""
    share = accuracy / 100
    return 100 * math.sqrt(share * (1 - share) / images)


def _published(network: str, method: str, sparsity: float | str) -> float | None:
    known = PAPER_NETWORKS.get(network)
    if known is None:
        return None
    if method == DENSE:
        return paper.DENSE[known]
    if isinstance(sparsity, str) or method not in PAPER_METHODS:
        return None
    return paper.paper_accuracy(known, PAPER_METHODS[method], sparsity)


def _mean(found: Sequence[Record], name: str) -> float | None:
    figures = [record[name] for record in found if name in record]
    return statistics.mean(figures) if figures else None


def imagenet_text(rows: Sequence[Row]) -> str:
    """Return the explanation and a table for each network."""
    parts = [EXPLANATION]
    for network, found in by_network(rows).items():
        parts.append(f"## {network}, {found[0]['test_images']:,} test images")
        parts += [DIFFERENCES[network]] if network in DIFFERENCES else []
        parts.append(as_markdown([_line(row) for row in found]))
    return "\n\n".join(parts)


def _line(row: Row) -> Row:
    return {
        "sparsity": row["sparsity"],
        "method": row["method"],
        "accuracy": f"{row['accuracy']:.1f} ({row['standard_error']:.1f})",
        "paper": row["paper"],
        "batch norm": row["batch_norm"],
        "seconds": None if row["seconds"] is None else f"{row['seconds']:.0f}",
        "training steps": row["training_steps"],
    }


def draw_imagenet(figure: Figure, rows: Sequence[Row]) -> None:
    """Draw the accuracy of each method against the sparsity, a panel for each network."""
    panels = by_network(rows)
    pruned = {
        network: [row for row in found if row["method"] != DENSE]
        for network, found in panels.items()
    }
    for axes, found in zip(draw_panels(figure, pruned, y="accuracy"), panels.values(), strict=True):
        for row in found:
            if row["method"] == DENSE:
                axes.axhline(row["accuracy"], color="gray", linewidth=0.8)
