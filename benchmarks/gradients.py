"""Time of the per-sample gradients of A, relative to one forward and backward pass.

Both use the same images, run in turn, and the fastest run of each counts. The plain pass includes
the gradients of the weights and uses its best batch size. The table also shows the time to write a
matrix of the size of A once: MLPNet is so small that writing A takes far longer than the plain
pass. ResNet50 has images of 224 x 224, as many as a machine can compute in reasonable time.

    python benchmarks/gradients.py [NETWORK ...]
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from torch.nn import functional

from chita.curvature.fisher import gradient_matrix
from chita.deploy.timing import timed
from chita.model.samples.stream import SampleStream
from chita.model.weights import Weights
from chita.zoo import NETWORKS

TURNS = 3


@dataclass(frozen=True)
class Case:
    """A network with the size of its images, and what is computed on a CPU and on a GPU.

    Attributes:
        shape: the shape of an image.
        classes: the number of classes.
        images: the number of images, n * m.
        batches: the values of m.
        plain_batches: the batch sizes of the plain pass, of which the fastest counts.
    """

    shape: tuple[int, int, int]
    classes: int
    images: int
    batches: tuple[int, ...]
    plain_batches: tuple[int, ...]


def cases(device: torch.device) -> dict[str, Case]:
    """Return the cases by network; ResNet50 has the paper's n and m on a GPU only."""
    large = Case((3, 224, 224), 1000, 16, (1, 4), (4, 16))
    if device.type == "cuda":
        large = Case((3, 224, 224), 1000, 8000, (16,), (128, 250))
    return {
        "resnet20": Case((3, 32, 32), 10, 1000, (1, 16), (125, 1000)),
        "mlpnet": Case((1, 28, 28), 10, 1000, (1, 16), (125, 1000)),
        "resnet50": large,
    }


def main() -> None:
    """Measure the networks and print a table."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    table = Table(title=f"Gradients on {device}, {torch.get_num_threads()} threads")
    for heading in (
        "network",
        "images",
        "m",
        "plain pass",
        "write A",
        "gradients",
        "to plain",
        "to plain + write",
    ):
        table.add_column(heading, justify="right")
    known = cases(device)
    for name in sys.argv[1:] or known:
        for batch in known[name].batches:
            times = measure(name, known[name], batch, device)
            plain, write, gradients = times["plain"], times["write"], times["gradients"]
            ratios = (gradients / plain, gradients / (plain + write))
            seconds = [f"{1e3 * t:.1f} ms" for t in (plain, write, gradients)]
            counts = (str(known[name].images), str(batch))
            table.add_row(name, *counts, *seconds, *(f"{ratio:.2f}" for ratio in ratios))
    Console().print(table)


def measure(name: str, case: Case, batch: int, device: torch.device) -> dict[str, float]:
    """Return the least seconds of the plain pass, of writing A and of the gradients."""
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(case.images, *case.shape, generator=generator).to(device)
    labels = torch.randint(case.classes, (case.images,), generator=generator).to(device)
    model = NETWORKS[name].build().to(device).eval()
    weights = Weights(model, include=NETWORKS[name].prunable)
    stream = SampleStream([(images, labels)])
    rows = case.images // batch
    tasks: dict[str, Callable[[], object]] = {
        "gradients": lambda: gradient_matrix(model, weights, stream, rows=rows, batch=batch),
        "write": lambda: torch.ones(weights.size, rows, device=device),
    }
    best: dict[str, float] = {}
    for _ in range(TURNS):
        for task, run in tasks.items():
            best[task] = min(best.get(task, float("inf")), timed(run, device)[1])
        for size in case.plain_batches:
            _, seconds = timed(partial(plain_pass, model, images, labels, size), device)
            best["plain"] = min(best.get("plain", float("inf")), seconds)
    return best


def plain_pass(model: nn.Module, images: Tensor, labels: Tensor, size: int) -> None:
    """Run forward and backward, including weight gradients."""
    for start in range(0, len(images), size):
        part = slice(start, start + size)
        loss = functional.cross_entropy(model(images[part]), labels[part])
        torch.autograd.grad(loss, list(model.parameters()))


if __name__ == "__main__":
    main()
