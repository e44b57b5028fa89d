"""The folder of a Hugging Face model: its configuration, weights and tokenizer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors.torch
from torch import Tensor

from chita.files.atomic import write_json, write_whole
from chita.files.huggingface_names import CONFIG, TOKENIZER, TOKENIZER_CONFIG
from chita.files.run_folder import MODEL_FILE


def write_model(folder: Path, config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    """Write the configuration and the weights, as float32."""
    write_json(folder / CONFIG, {**config, "dtype": "float32"})
    content = {name: tensor.float().contiguous() for name, tensor in tensors.items()}
    write_whole(folder / MODEL_FILE, safetensors.torch.save(content, metadata={"format": "pt"}))


def write_tokenizer(folder: Path, tokenizer: Mapping[str, Any], special: Mapping[str, str]) -> None:
    """Write a tokenizer and its special tokens, such as {"eos_token": "</s>"}.

    Args:
        folder: the folder of the model.
        tokenizer: the content of tokenizer.json.
        special: the special tokens by their names in transformers.
    """
    text = json.dumps(tokenizer, ensure_ascii=False)
    write_whole(folder / TOKENIZER, text.encode())
    write_json(folder / TOKENIZER_CONFIG, {"tokenizer_class": "PreTrainedTokenizerFast", **special})
