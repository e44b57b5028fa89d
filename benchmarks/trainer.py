"""Overhead of the trainer of `chita gradual` over a plain training loop: hooks, masks, files.

    python benchmarks/trainer.py

Both loops train ResNet20 on random images of CIFAR-10's size. Both augment the images, test after
each epoch and set the learning rate at each step; the trainer has finished pruning and only applies
its mask. Epochs of the two loops alternate. The script compares the CPU time of the fastest epochs
on one thread, which depends little on other programs.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F  # noqa: N812

from chita import zoo
from chita.data import Batches, ImageData, Splits
from chita.data.preprocessing import pad_crop_flip
from chita.gradual.recipe import GradualRecipe
from chita.gradual.training import Training
from chita.model.accuracy import accuracy
from chita.report.progress import step_bar
from chita.solver.ranks import ALONE

BATCH = 128


def random_images(count: int) -> ImageData:
    generator = torch.Generator().manual_seed(count)
    images = torch.randint(256, (count, 3, 32, 32), dtype=torch.uint8, generator=generator)
    labels = torch.randint(10, (count,), generator=generator)
    return ImageData(images, labels, (0.5,) * 3, (0.25,) * 3)


def plain_loop(splits: Splits) -> Callable[[], None]:
    """Return a function that runs an epoch of a plain training loop."""
    model = zoo.get("resnet20").build()
    train = Batches(splits.train, BATCH, shuffle=True, augment=pad_crop_flip)
    test = Batches(splits.test, 4 * BATCH)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10_000)

    def epoch() -> None:
        model.train()
        for inputs, targets in train:
            loss = F.cross_entropy(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            schedule.step()
        accuracy(model, test)

    return epoch


def trainer(splits: Splits, epochs: int, folder: Path) -> Callable[[], None]:
    """Return a function that runs an epoch of the trainer after its only pruning step."""
    network = zoo.get("resnet20")
    training = Training(
        network.build(),
        splits,
        GradualRecipe(
            epochs=epochs + 1, batch_size=BATCH, augment="pad-crop-flip", pruning_steps=1
        ),
        method="global-magnitude",
        sparsity=0.9,
        seed=0,
        include=network.prunable,
        ranks=ALONE,
    )
    training.keep_epochs(folder, resume=False)
    training.next_epoch(None)

    def epoch() -> None:
        with step_bar("training") as progress:
            training.next_epoch(progress)

    return epoch


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, default=4 * BATCH)
    parser.add_argument("--epochs", type=int, default=10)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    splits = Splits(random_images(arguments.images), random_images(2 * BATCH))
    with tempfile.TemporaryDirectory() as folder:
        loops = {
            "plain loop": plain_loop(splits),
            "trainer": trainer(splits, arguments.epochs, Path(folder)),
        }
        fastest = dict.fromkeys(loops, float("inf"))
        for _ in range(arguments.epochs):
            for name, epoch in loops.items():
                began = time.process_time()
                epoch()
                fastest[name] = min(fastest[name], time.process_time() - began)
    for name, seconds in fastest.items():
        print(f"{name:10}  {seconds:7.3f} s an epoch")
    print(f"overhead    {fastest['trainer'] / fastest['plain loop'] - 1:7.1%}")


if __name__ == "__main__":
    main()
