"""The settings of cuDNN inside the contexts, and those of the caller afterwards."""

from __future__ import annotations

import pytest
import torch

from chita.model.convolutions import convolution_trials, exact_convolutions, rounds_factors


def test_the_setting_of_trials_comes_back() -> None:
    before = torch.backends.cudnn.benchmark
    with pytest.raises(KeyboardInterrupt), convolution_trials(not before):
        assert torch.backends.cudnn.benchmark is not before
        raise KeyboardInterrupt
    assert torch.backends.cudnn.benchmark is before


@pytest.mark.parametrize("given", [True, False])
def test_convolutions_are_exact_only_inside(given: bool) -> None:
    before = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = given
    try:
        with pytest.raises(KeyboardInterrupt), exact_convolutions():
            assert not rounds_factors()
            raise KeyboardInterrupt
        assert rounds_factors() == torch.backends.cudnn.allow_tf32 == given
        with exact_convolutions(wanted=False):
            assert rounds_factors() == given
    finally:
        torch.backends.cudnn.allow_tf32 = before
