"""Samples of a user that are gathered in memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from chita.data.gather import gather_samples
from chita.errors import ChitaError
from tests.support.messages import naming

MODEL = nn.Linear(3, 2)
X = np.arange(12, dtype=np.float64).reshape(4, 3)


def test_all_samples_are_in_one_tensor_of_the_model_s_type() -> None:
    found = gather_samples("mine", MODEL, [(X[:3], [0, 1, 0]), (X[3:], [1])])
    assert torch.equal(found.images, torch.from_numpy(X).float())
    assert found.labels.tolist() == [0, 1, 0, 1] and found.labels.dtype == torch.int64
    assert len(found) == 4 and not found.mean


@pytest.mark.parametrize(
    ("given", "stated"),
    [
        ([], "mine"),
        ([(X, np.ones(4))], "torch.float32"),
        ([((X, X), [0, 1, 0, 1])], (4, 3)),
        ([{"input": X, "labels": [0, 1, 0, 1]}], "dict"),
    ],
)
def test_other_data_are_an_error_with_what_was_given(given: Any, stated: object) -> None:
    with pytest.raises(ChitaError, match=naming("mine", stated)):
        gather_samples("mine", MODEL, given)
