"""The module inside its wrappers."""

from __future__ import annotations

from torch import nn
from torch.nn.parallel import DataParallel, DistributedDataParallel
from torch.optim.swa_utils import AveragedModel


def unwrapped(model: nn.Module) -> nn.Module:
    """The module inside DistributedDataParallel, torch.compile or an average of weights."""
    while True:
        if isinstance(model, (AveragedModel, DataParallel, DistributedDataParallel)):
            model = model.module
        elif isinstance(inner := getattr(model, "_orig_mod", None), nn.Module):
            model = inner
        else:
            return model
