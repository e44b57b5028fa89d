"""Picture files made on the spot."""

import struct
import zlib
from pathlib import Path

import pytest
import torch

Image = pytest.importorskip("PIL.Image", reason="pictures need pillow")


def noise(height: int, width: int, seed: int = 0) -> torch.Tensor:
    """(H, W, 3) uint8, smooth enough for JPEG to keep."""
    generator = torch.Generator().manual_seed(seed)
    coarse = torch.rand(1, 3, 4, 5, generator=generator)
    fine = torch.nn.functional.interpolate(coarse, (height, width), mode="bicubic")
    return (255 * fine[0].clamp(0, 1)).to(torch.uint8).permute(1, 2, 0)


def save(path: Path, *, size: tuple[int, int] = (12, 10), mode: str = "RGB", seed: int = 0) -> Path:
    """A picture of (width, height) pixels, in the format of its suffix."""
    picture = Image.fromarray(noise(size[1], size[0], seed).numpy()).convert(mode)
    path.parent.mkdir(parents=True, exist_ok=True)
    picture.save(path)
    return path


def save_classes(folder: Path, *, classes: int, each: int) -> None:
    """`each` JPEG pictures in every class folder a, b, ...; no two alike."""
    for label in range(classes):
        for number in range(each):
            name = f"{chr(ord('a') + label)}/{number:03}.jpg"
            save(folder / name, seed=each * label + number)


def save_bomb(path: Path, *, side: int) -> Path:
    """A PNG of a few bytes that claims side x side pixels."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        check = zlib.crc32(kind + content)
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", check)

    header = struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)
    content = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + content)
    return path
