import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel

from chita.model.unwrap import unwrapped


def test_the_module_inside() -> None:
    model = nn.Linear(2, 2)
    assert unwrapped(model) is model
    assert unwrapped(nn.DataParallel(torch.compile(model))) is model
    averaged = AveragedModel(model)
    assert unwrapped(averaged) is averaged.module
