"""timm, which needs torchvision, of which there is no build for the torch of the tests.

`make` installs both into a folder of their own, outside the path of all other tests: transformers
would import torchvision if it found it.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

FOLDER = Path(sys.prefix) / "timm" / "site-packages"  # hypothesis reads all code outside such ones
_OPERATORS = ("nms", "qnms")  # torchvision describes them when it is imported
_kept: list[torch.library.Library] = []  # operators exist as long as their library


def import_timm() -> None:
    """Import timm from its folder, or skip the test if it is not there.

    `import timm` works from then on, because Python finds loaded modules without a path.
    """
    if "timm" in sys.modules:
        return
    if not (FOLDER / "timm").is_dir():
        pytest.skip("timm is not installed in the folder of the tests")
    if not _kept:
        library = torch.library.Library("torchvision", "FRAGMENT")
        for name in _OPERATORS:
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _kept.append(library)
    sys.path.insert(0, str(FOLDER))
    try:
        import timm  # noqa: F401
    finally:
        sys.path.remove(str(FOLDER))
