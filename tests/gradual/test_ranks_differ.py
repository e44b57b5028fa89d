"""train_sparse on ranks whose models differ."""

from __future__ import annotations

import pytest
import torch

from chita.errors import ChitaError
from tests.gradual.small import small_network, train
from tests.support.gloo import on_ranks
from tests.support.messages import says
from tests.support.pruning import Snapshot, same, snapshot

pytestmark = pytest.mark.slow


def trained(rank: int) -> tuple[str, Snapshot]:
    model = small_network()
    name, buffer = next(iter(model.named_buffers()))
    with torch.no_grad():
        buffer += rank
    try:
        train(model, method="gmp")
        told = ""
    except ChitaError as error:
        told = str(error)
    assert says(told, f"buffer {name}", "rank 0", "rank 1", "sync=True"), told
    train(model, method="gmp", sync=True)
    return told, snapshot(model)


def test_they_are_refused_by_name_or_synchronised() -> None:
    first, second = on_ranks(2, trained)
    for found in (first, second):
        if isinstance(found, Exception):
            raise found
    assert first[0] == second[0]
    assert same(first[1], second[1])
