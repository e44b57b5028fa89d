"""Runs with recovery that are set up and planned, for networks that have learned a little."""

from __future__ import annotations

import time
from typing import Any

from torch import nn

from chita.pruning.config import PruneConfig
from chita.pruning.recovery.stage_recovery import StageRecovery
from chita.pruning.setup import Setup
from tests.support.guarded import fit
from tests.support.pruning import cut, points, tiny


def trained() -> nn.Module:
    model = tiny()
    fit(model, points(300))
    return model


def setup_of(samples: int = 300, model: nn.Module | None = None, **options: Any) -> Setup:
    defaults: dict[str, Any] = {"sparsity": 0.8, "method": "auto", "budget": "300 steps"}
    config = PruneConfig(**{**defaults, **options})
    return Setup(model or trained(), cut(points(samples), 50), None, config)


def recovery_of(setup: Setup) -> StageRecovery:
    assert setup.recovery is not None
    return setup.recovery


def planned(setup: Setup) -> StageRecovery:
    recovery = recovery_of(setup)
    recovery.make_plan(
        setup.pruned_to,
        entrants=setup.search.entrants,
        began=time.perf_counter(),
        expect=setup.forecast.expect,
    )
    return recovery
