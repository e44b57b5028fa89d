"""Decode image files to tensors with Pillow; the files may be damaged or hostile."""

from __future__ import annotations

import warnings

import numpy as np
import torch
from torch import Tensor

from chita.errors import ChitaError

SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".ppm", ".tif", ".tiff", ".webp")
# Pillow supports more formats, some of which run other programs. WebP is last because a build of
# Pillow may lack it, so the others are tried first.
_FORMATS = ("JPEG", "PNG", "BMP", "PPM", "TIFF", "WEBP")


def require_pillow(use: str) -> None:
    """Raise an error that names the use if Pillow is not installed."""
    try:
        import PIL.Image  # noqa: F401
    except ImportError as error:
        raise ChitaError(f"{use} need pillow: pip install 'chita[images]'") from error


def decode(path: str) -> Tensor:
    """Return the image in a file as (3, H, W) uint8, converted to RGB.

    Raise an exception of any type if the file cannot be read, is incomplete, or claims so many
    pixels that Pillow considers it a decompression bomb.
    """
    from PIL import Image

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # most warnings are about metadata
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        with Image.open(path, formats=_FORMATS) as picture:
            if picture.mode.startswith(
                "I"
            ):  # 16 bits of grey, which Pillow would clip instead of scale
                grey = (np.array(picture) >> 8).clip(0, 255).astype(np.uint8)
                pixels = np.repeat(grey[:, :, None], 3, axis=2)
            else:
                pixels = np.array(picture.convert("RGB"))
    return torch.from_numpy(pixels).permute(2, 0, 1)
