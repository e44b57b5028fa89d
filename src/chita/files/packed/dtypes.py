"""The types of tensors in a packed file: their names, and their numbers as unsigned words."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from chita.errors import ChitaError

Bytes = npt.NDArray[np.uint8]  # (n, width): a row for each number, little-endian
Words = npt.NDArray[Any]  # (n,): the bits of each number as an unsigned integer

# The names of safetensors.
_BY_NAME: dict[str, torch.dtype] = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "C64": torch.complex64,
    "C128": torch.complex128,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U64": torch.uint64,
    "U32": torch.uint32,
    "U16": torch.uint16,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
_BY_TYPE = {dtype: name for name, dtype in _BY_NAME.items()}
_WORD: dict[str, np.dtype[Any]] = {
    "F32": np.dtype("<u4"),
    "F16": np.dtype("<u2"),
    "BF16": np.dtype("<u2"),
}

NAMES = frozenset(_BY_NAME)
PRUNABLE = frozenset(_WORD)  # stored without their zeros; all other types are stored dense


def dtype_name(dtype: torch.dtype) -> str:
    """Return the name of a type in the file."""
    if dtype not in _BY_TYPE:
        raise ChitaError(f"tensors of {dtype} cannot be packed; known are {', '.join(_BY_NAME)}")
    return _BY_TYPE[dtype]


def width(name: str) -> int:
    """Return the bytes of one number."""
    return _BY_NAME[name].itemsize


def to_bytes(tensor: Tensor) -> Bytes:
    """Return the numbers of a tensor, in row-major order."""
    plain = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous().reshape(-1)
    flat: Bytes = plain.view(torch.uint8).numpy()
    return flat.reshape(-1, plain.element_size())


def to_tensor(numbers: Bytes, name: str, shape: tuple[int, ...]) -> Tensor:
    """Return the tensor of these numbers, on the same memory."""
    if name == "BOOL" and (numbers > 1).any():
        raise ChitaError("a truth value is neither 0 nor 1")
    return torch.from_numpy(numbers.reshape(-1)).view(_BY_NAME[name]).reshape(shape)


def to_words(numbers: Bytes, name: str) -> Words:
    """Return the numbers of a prunable type as words, on the same memory."""
    return numbers.reshape(-1).view(_WORD[name])


def from_words(words: Words) -> Bytes:
    """Return the numbers of the words, on the same memory."""
    return words.view(np.uint8).reshape(-1, words.itemsize)


def negative_zero(name: str) -> int:
    """Return the word of -0.0, which equals zero but has other bits."""
    return 1 << (8 * width(name) - 1)
