"""Masks as small images: each cell is the share of weights kept in a patch of the matrix."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import safetensors

from chita.errors import ChitaError
from chita.files.regular import open_regular
from chita.report.page.parts import Part

SIDE = 128  # the most cells along a side of a square image
CELLS = 600_000  # the most cells in all images together, which keeps the page under 2 MB


def mask_pictures(path: Path, order: Sequence[str] = ()) -> list[Part]:
    """Return a picture of every mask that is not empty, those named in `order` first.

    A mask of shape (o, i, ...) is flattened to the matrix (o, i * ...), and the matrix cut into
    height x width patches; cell (r, c) begins at row floor(r rows / height), and so for columns.
    """
    try:
        with open_regular(path), safetensors.safe_open(path, framework="np") as file:
            stored = list(file.keys())
            names = [name for name in order if name in stored]
            names += [name for name in stored if name not in names]
            side = min(SIDE, int((CELLS / max(len(names), 1)) ** 0.5))
            masks = ((name, file.get_tensor(name)) for name in names)
            return [_picture(name, mask, max(side, 1)) for name, mask in masks if mask.size]
    except (OSError, TypeError, safetensors.SafetensorError) as error:  # numpy lacks some types
        raise ChitaError(f"cannot read {path} as the masks of a run: {error}") from error


def _picture(name: str, mask: npt.NDArray[np.bool_], side: int) -> Part:
    matrix = mask.reshape(mask.shape[0] if mask.ndim > 1 else 1, -1)
    rows, columns = matrix.shape
    height, width = _grid(rows, columns, side)
    densities = pool(matrix, height, width)
    densest = float(densities.max(initial=0))
    cells = np.rint(densities * (255 / (densest or 1))).astype(np.uint8)
    return {
        "name": name,
        "shape": list(mask.shape),
        "rows": rows,
        "columns": columns,
        "height": height,
        "width": width,
        "weights": mask.size,
        "kept": int(np.count_nonzero(mask)),
        "densest": densest,
        "cells": base64.b64encode(cells.tobytes()).decode(),
    }


def _grid(rows: int, columns: int, side: int) -> tuple[int, int]:
    """Return height and width with at most side^2 cells, neither above four times `side`."""
    height = min(rows, side)
    width = min(columns, side * side // height, 4 * side)
    return min(rows, side * side // width, 4 * side), width


def pool(matrix: npt.NDArray[np.bool_], height: int, width: int) -> npt.NDArray[np.float64]:
    """Return the share of True in each of height x width patches of nearly equal size."""
    rows, columns = matrix.shape
    tops = np.arange(height) * rows // height
    lefts = np.arange(width) * columns // width
    counts = np.add.reduceat(matrix.astype(np.uint8), tops, axis=0, dtype=np.int64)
    counts = np.add.reduceat(counts, lefts, axis=1)
    areas = np.outer(np.diff(tops, append=rows), np.diff(lefts, append=columns))
    shares: npt.NDArray[np.float64] = counts / areas
    return shares
