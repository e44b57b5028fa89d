"""Time of the per-sample gradients of A, relative to one forward and backward pass.

Both use the same images, run in turn, and the fastest run of each counts. The plain pass includes
the gradients of the weights and uses its best batch size. The table also shows the time to write a
matrix of the size of A once: MLPNet is so small that writing A takes far longer than the plain
pass.

    python benchmarks/gradients.py
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from torch.nn import functional

from chita.curvature.fisher import gradient_matrix
from chita.deploy.timing import timed
from chita.model.sample_stream import SampleStream
from chita.model.weights import Weights
from chita.zoo import NETWORKS

IMAGES = 1000
TURNS = 3
PLAIN_BATCHES = (125, 1000)
SHAPES = {"resnet20": (3, 32, 32), "mlpnet": (1, 28, 28)}


def main() -> None:
    """Measure the two networks and print a table."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    table = Table(
        title=f"Gradients of {IMAGES} images on {device}, {torch.get_num_threads()} threads"
    )
    for heading in (
        "network",
        "m",
        "plain pass",
        "write A",
        "gradients",
        "to plain",
        "to plain + write",
    ):
        table.add_column(heading, justify="right")
    for name, shape in SHAPES.items():
        for batch in (1, 16):
            times = measure(name, shape, batch, device)
            plain, write, gradients = times["plain"], times["write"], times["gradients"]
            ratios = (gradients / plain, gradients / (plain + write))
            seconds = [f"{1e3 * t:.1f} ms" for t in (plain, write, gradients)]
            table.add_row(name, str(batch), *seconds, *(f"{ratio:.2f}" for ratio in ratios))
    Console().print(table)


def measure(
    name: str, shape: tuple[int, ...], batch: int, device: torch.device
) -> dict[str, float]:
    """Return the least seconds of the plain pass, of writing A and of the gradients."""
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(IMAGES, *shape, generator=generator).to(device)
    labels = torch.randint(10, (IMAGES,), generator=generator).to(device)
    model = NETWORKS[name].build().to(device).eval()
    weights = Weights(model, include=NETWORKS[name].prunable)
    stream = SampleStream([(images, labels)])
    rows = IMAGES // batch
    tasks: dict[str, Callable[[], object]] = {
        "gradients": lambda: gradient_matrix(model, weights, stream, rows=rows, batch=batch),
        "write": lambda: torch.ones(weights.size, rows, device=device),
    }
    best: dict[str, float] = {}
    for _ in range(TURNS):
        for task, run in tasks.items():
            best[task] = min(best.get(task, float("inf")), timed(run, device)[1])
        for size in PLAIN_BATCHES:
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
