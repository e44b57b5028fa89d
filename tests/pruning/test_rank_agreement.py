"""Ranks share a run only if they were all asked for the same."""

from __future__ import annotations

import re
from dataclasses import asdict, replace
from typing import Any

import pytest
import torch

from chita.errors import ChitaError
from chita.model.samples.stream import SampleStream
from chita.model.weights import Weights
from chita.pruning.calibration import Calibration
from chita.pruning.config import PruneConfig
from chita.pruning.rank_agreement import (
    agree_on_calibration,
    agree_on_model,
    agree_on_options,
    agreed_ranks,
)
from chita.pruning.supports import Supports
from chita.solver.ranks import ALONE, Ranks, joined_ranks
from tests.support.gloo import on_ranks
from tests.support.messages import says
from tests.support.pruning import tiny

CONFIG = PruneConfig(sparsity=0.5, method="chita-bso")


def outcome(ranks: Ranks, config: PruneConfig, *, n: int = 10, moved: float = 0.0) -> str:
    """Who shares the work, or why nobody can."""
    model = tiny()
    with torch.no_grad():
        model[0].weight += moved
    weights = Weights(model)
    try:
        agree_on_options(ranks, asdict(config))
        agree_on_model(ranks, model, sync=False)
        data = Calibration(SampleStream(()), n, 1, [], [], 1)
        agree_on_calibration(ranks, data, config, shared=True)
        found = agreed_ranks(ranks, config, Supports(model, weights, config), n=n)
    except ChitaError as error:
        return str(error)
    assert found is ranks or found is ALONE
    return "shared" if found is ranks else "alone"


def outcomes(rank: int) -> dict[str, str]:
    own: dict[str, tuple[PruneConfig, dict[str, Any]]] = {
        "the same": (CONFIG, {}),
        "without gradients": (replace(CONFIG, method="magnitude"), {}),
        "arguments without gradients": (replace(CONFIG, method="magnitude", seed=rank), {}),
        "a method for one process": (replace(CONFIG, method="m-fac"), {}),
        "limits of layers": (replace(CONFIG, allocation="erk"), {}),
        "arguments": (replace(CONFIG, seed=rank, sparsity=0.5 + rank / 10), {}),
        "numbers of samples": (CONFIG, {"n": 10 + rank}),
        "weights": (CONFIG, {"moved": float(rank)}),
        "few samples": (CONFIG, {"n": 1}),
    }
    with joined_ranks() as ranks:
        return {name: outcome(ranks, config, **more) for name, (config, more) in own.items()}


@pytest.mark.slow
def test_two_ranks_agree_or_say_in_what_they_differ() -> None:
    first, second = on_ranks(2, outcomes)
    assert isinstance(first, dict), first
    for name, told in {
        "the same": ("shared",),
        "without gradients": ("alone",),
        "a method for one process": ("m-fac", "auto, chita++, chita-bso, chita-cd"),
        "limits of layers": ("ranks", re.compile("limits|allocation")),
        "few samples": ("samples=1", "2 ranks"),
    }.items():
        assert says(first[name], *told) and first[name] == second[name], name
    for name, told in {
        "arguments": ("sparsity", 0.5, 0.6, "seed", "rank 0", "rank 1"),
        "numbers of samples": ("n", 10, 11, "rank 0", "rank 1"),
        "arguments without gradients": ("seed", 0, 1, "rank 0", "rank 1"),
        "weights": ("0.weight", "rank 0", "rank 1", "sync=True"),
    }.items():
        assert says(first[name], *told), name
        assert first[name] == second[name], name


def test_one_process_shares_with_nobody() -> None:
    for method in ("chita-bso", "m-fac", "magnitude"):
        config = replace(CONFIG, method=method, allocation="erk")
        assert outcome(Ranks(), config, n=1) == "alone"
