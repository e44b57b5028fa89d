"""Cost of the candidate search of method="auto": its forward passes relative to a whole stage.

The networks are the MLPNet that ships with chita, on its digits, and ResNet20, if the folder of
checkpoints contains it, on random images with the classes that it predicts: the time of a pass does
not depend on the images. `solve` is the time to solve for all candidates, `held_out` the time to
compute their losses. The first stage tries all kinds of candidates and takes longer than the later
ones; with few stages its share is larger than in a run of 60 stages.

    python benchmarks/candidate_search.py [--checkpoints DIR] [--device cuda] [--stages 8]
        [--samples 1000]
"""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn

from chita import data, prune, zoo
from chita.files.checkpoint import load_checkpoint
from chita.model.forward import evaluating
from chita.paper.networks import CHECKPOINTS

MOST = 0.5  # the largest accepted share of the stages' time
SPARSITY = 0.9
BATCH = 16  # m, the samples averaged into a row of A
IMAGES = 200  # the batch size of the random images
DATA = BATCH * 2  # samples for each row of A, including held-out ones


def main() -> None:
    """Prune each network and print the times."""
    parser = ArgumentParser(description="Share of the candidate search in the time of a stage.")
    parser.add_argument("--checkpoints", type=Path, help="folder with ResNet20's trained weights")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--stages", type=int, default=8)
    parser.add_argument("--samples", type=int, default=1000, help="n, the rows of A")
    arguments = parser.parse_args()
    device = torch.device(arguments.device)
    heads = f"{'gradients':>10} {'solve':>8} {'held_out':>8} {'held_out/stage':>14}"
    print(f"{'network':10} {'stage':>6} {heads}")
    for name, model, batches in subjects(arguments.checkpoints, arguments.samples, device):
        result = prune(
            model,
            batches,
            sparsity=SPARSITY,
            stages=arguments.stages,
            samples=arguments.samples if name != "mlpnet" else None,
            progress=False,
        )
        rows = [
            (str(row.stage), row.gradient_seconds, row.solve_seconds, row.held_out_seconds)
            for row in result.stages
        ]
        total = result.seconds
        for row in (*rows, ("all", total.gradients, total.solve, total.held_out)):
            print_row(name, *row)
        share = total.held_out / (total.gradients + total.solve + total.held_out)
        print(f"{name}: the search takes {'at most' if share <= MOST else 'OVER'} half of the time")


def print_row(name: str, stage: str, gradients: float, solve: float, held_out: float) -> None:
    share = held_out / (gradients + solve + held_out)
    print(f"{name:10} {stage:>6} {gradients:10.2f} {solve:8.2f} {held_out:8.2f} {share:14.1%}")


def subjects(
    checkpoints: Path | None, rows: int, device: torch.device
) -> Iterator[tuple[str, nn.Module, Any]]:
    """Yield the name, the trained model and the calibration batches of each network."""
    mlpnet = zoo.get("mlpnet")
    assert mlpnet.embedded is not None
    digits = data.load(mlpnet.embedded.data).train
    model = mlpnet.build().to(device)
    load_checkpoint(model, mlpnet.embedded.checkpoint)
    yield "mlpnet", model, data.Batches(digits, mlpnet.batch_size, device=device)
    file = None if checkpoints is None else checkpoints / CHECKPOINTS["resnet20"]
    if file is None or not file.is_file():
        return
    model = zoo.get("resnet20").build().to(device)
    load_checkpoint(model, file)
    yield "resnet20", model, random_images(model, rows * DATA, device)


@torch.no_grad()
def random_images(model: nn.Module, count: int, device: torch.device) -> Any:
    """Return random images of the size of CIFAR's with the classes that the model predicts."""
    generator = torch.Generator().manual_seed(0)
    batches = []
    with evaluating(model):
        for _ in range(count // IMAGES):
            images = torch.randn(IMAGES, 3, 32, 32, generator=generator).to(device)
            batches.append((images, model(images).argmax(1)))
    return batches


if __name__ == "__main__":
    main()
