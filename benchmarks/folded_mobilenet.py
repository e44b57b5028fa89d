"""Accuracy of the folded MobileNetV1 pruned by method="auto", magnitude, OBD and LAMP.

Batch norm is folded into the weights, so that the scales of the channels differ by orders of
magnitude. The calibration set has one image of each class from `imagenet-sample` and the first of
each class from `imagenet-val2`; the test set has the second of each class from `imagenet-val2`.

    python benchmarks/folded_mobilenet.py --shared DIR --device cuda
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn

import chita
from chita import data, zoo
from chita.files.checkpoint import load_checkpoint
from chita.model.accuracy import accuracy
from chita.paper.small_imagenet import SIZE, lay_out

NETWORK = zoo.get("mobilenetv1-folded")
CHECKPOINT = "checkpoints/mobilenetv1_imagenet_folded.safetensors"
WANTED = {0.5: 55.0, 0.7: 25.0}
Held = list[tuple[Tensor, Tensor]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shared", type=Path, default=Path("../shared"))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--sparsity", type=float, nargs="+", default=list(WANTED))
    parser.add_argument("--stages", type=int, default=None)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=None, help="JSON Lines file to append to")
    given = parser.parse_args()
    place = torch.device(given.device)
    with tempfile.TemporaryDirectory() as folder:
        lay_out(given.shared / "data", Path(folder))
        # The images are already cropped: resizing them to 256 would cut off their edges.
        preprocessing = replace(NETWORK.preprocessing or data.Preprocessing(), resize=SIZE)
        splits = data.image_folder(folder, preprocessing, classes=NETWORK.classes)
        calibration = in_memory(splits.train.shuffled(given.seed), place)
        test = in_memory(splits.test, place)
    dense = NETWORK.build().to(place)
    load_checkpoint(dense, given.shared / CHECKPOINT)
    print(f"dense: {accuracy(dense, test):.2f} %, {len(calibration)} batches to calibrate on")
    for sparsity in given.sparsity:
        for method in ("magnitude", "lamp", "obd", "auto"):
            start = time.perf_counter()
            model, stages = pruned(dense, calibration, sparsity, method, given)
            row = {
                "sparsity": sparsity,
                "method": method,
                "accuracy": accuracy(model, test),
                "seconds": time.perf_counter() - start,
                "stages": stages,
            }
            wanted = f", wanted {WANTED[sparsity]}" if sparsity in WANTED else ""
            print(
                f"{sparsity} {method}: {row['accuracy']:.2f} %"
                f"{wanted if method == 'auto' else ''}, {row['seconds']:.1f} s",
                flush=True,
            )
            if given.out is not None:
                with given.out.open("a") as file:
                    file.write(json.dumps(row) + "\n")


def in_memory(images: data.Images, place: torch.device) -> Held:
    """Decode the images once and return them in batches."""
    return [(x.to(place), y.to(place)) for x, y in data.Batches(images, 100)]


def pruned(
    dense: nn.Module, calibration: Held, sparsity: float, method: str, given: argparse.Namespace
) -> tuple[nn.Module, list[str]]:
    """Return a pruned copy and the reason for the choice of each stage."""
    settings = {"stages": given.stages} if method == "auto" else {"batch": 1, "ridge": 0.0}
    result = chita.prune(
        dense,
        calibration,
        sparsity=sparsity,
        method=method,
        include=NETWORK.prunable,
        inplace=False,
        seed=given.seed,
        progress=False,
        **settings,
    )
    return result.model, [f"{row.sparsity:.3f} {row.why}" for row in result.stages]


if __name__ == "__main__":
    main()
