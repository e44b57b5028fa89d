"""State dicts to pack, and whether two of them have the same bits."""

from collections.abc import Mapping

import torch
from torch import Tensor

FLOATS = (torch.float32, torch.float16, torch.bfloat16)


def entries(tensor: Tensor) -> list[bytes]:
    """The bytes of each entry, in row-major order."""
    plain = tensor.detach().contiguous().reshape(-1)
    content = plain.view(torch.uint8).numpy().tobytes()
    width = tensor.element_size()
    return [content[i : i + width] for i in range(0, len(content), width)]


def same_bits(first: Mapping[str, Tensor], second: Mapping[str, Tensor]) -> bool:
    return first.keys() == second.keys() and all(
        tensor.dtype == second[name].dtype
        and tensor.shape == second[name].shape
        and entries(tensor) == entries(second[name])
        for name, tensor in first.items()
    )


def sparse(shape: tuple[int, ...], density: float, seed: int = 0) -> Tensor:
    """Normal weights, of which about this share are kept."""
    generator = torch.Generator().manual_seed(seed)
    kept = torch.rand(shape, generator=generator) < density
    return torch.where(kept, torch.randn(shape, generator=generator), 0.0)


def small_state() -> dict[str, Tensor]:
    """A tensor of each form, two of one memory, and one with negative zeros."""
    rare = sparse((40, 50), 0.03)
    return {
        "rare": rare,
        "tied": rare,
        "half": sparse((20, 30), 0.5).bfloat16(),
        "signed": -sparse((30, 30), 0.1),
        "dense": sparse((6, 7), 1.0),
        "steps": torch.tensor(7),
    }
