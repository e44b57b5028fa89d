"""A sample that is not finite is named, wherever recovery meets it, and the model is unchanged."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import chita
from chita.errors import ChitaError
from tests.support.messages import naming
from tests.support.pruning import points, same, snapshot, tiny
from tests.support.recovering import halved, normalised

PLACES = range(0, 200, 23)  # some of these samples are held out


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("norm", [True, False])
@pytest.mark.parametrize("teaches", [True, False])
def test_recover_names_the_sample(place: int, norm: bool, teaches: bool) -> None:
    dense: Any = normalised() if norm else tiny()
    inputs, labels = (tensor.clone() for tensor in points(200))
    inputs[place, 1] = math.nan
    parts = list(zip(inputs.split(30), labels.split(30), strict=True))
    loader: Any = DataLoader(TensorDataset(inputs, labels), 30)
    in_batch = naming(f"sample {place % 30}", f"batch {place // 30}", "batches", "finite")
    for batches, message in (
        (parts, in_batch),
        (loader, in_batch),
        ((inputs, labels), naming(f"sample {place}", "batches", without="batch")),
    ):
        model = halved(dense)
        before = snapshot(model)
        how: dict[str, Any] = {"teacher": dense} if teaches else {"loss": "cross_entropy"}
        with pytest.raises(ChitaError, match=message):
            chita.recover(model, batches, budget="20 steps", progress=False, **how)
        assert same(snapshot(model), before)


def test_pruning_names_a_sample_that_only_its_training_reads() -> None:
    """The rows of A are a part of the samples."""
    named = 0
    for place in PLACES:
        inputs, labels = (tensor.clone() for tensor in points(200))
        inputs[place] = math.inf
        model = nn.Sequential(tiny()[0], nn.ReLU(), tiny()[2])
        before = snapshot(model)
        with pytest.raises(ChitaError, match=naming("finite")) as found:
            chita.prune(model, [(inputs, labels)], sparsity=0.5, method="magnitude", recover=True,
                        budget="20 steps", progress=False)  # fmt: skip
        named += f"sample {place} of batch 0" in str(found.value)
        assert same(snapshot(model), before)
    assert named > 0.7 * len(PLACES)  # an error about held-out samples may come first


def test_samples_that_are_finite_are_not_to_blame() -> None:
    """A model whose loss is never finite in training, but finite in evaluation."""
    model = halved(normalised())

    def loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return outputs.square().mean() * (math.nan if torch.is_grad_enabled() else 1.0)

    with pytest.raises(ChitaError, match=naming("finite", without="sample")):
        chita.recover(model, [points(80)], loss=loss, budget="20 steps", progress=False)
