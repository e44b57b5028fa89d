"""Stage policies: the rows of A for small and large networks."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chita.pruning.budget import BUDGETS
from chita.pruning.config import PruneConfig
from chita.pruning.stage_policy import LEAST_ROWS, RECOVERY_BATCH, policy_for

FLOAT = 4  # bytes


@pytest.mark.parametrize("budget", sorted(BUDGETS))
@given(p=st.integers(1, 10**9))
def test_the_rows_of_a_large_network_fit_into_the_memory_of_the_budget(budget: str, p: int) -> None:
    limits = BUDGETS[budget]
    policy = policy_for(PruneConfig(sparsity=0.9, budget=budget), p)
    assert policy.rows * p * FLOAT <= max(limits.matrix_bytes, LEAST_ROWS * p * FLOAT)
    assert LEAST_ROWS <= policy.rows <= limits.rows
    wanted = RECOVERY_BATCH * limits.rows
    assert wanted - policy.rows < policy.rows * policy.batch <= wanted


@pytest.mark.parametrize("options", [{"recover": False}, {"method": "chita++"}])
def test_without_recovery_the_rows_are_those_of_the_paper(options: dict[str, object]) -> None:
    config = PruneConfig(sparsity=0.9, **options)  # type: ignore[arg-type]
    small, large = (policy_for(config, p) for p in (1, 10**9))
    assert (small.rows, small.batch) == (large.rows, large.batch)
    assert small.rows == 1000


@pytest.mark.parametrize(
    ("options", "solutions", "masks"),
    [
        ({"method": "auto"}, True, True),
        ({"method": "auto", "recover": False}, True, False),
        ({"method": "chita++"}, True, False),  # it chooses lambda
        ({"method": "chita++", "recover": True}, True, False),
        ({"method": "magnitude", "recover": True}, False, False),
    ],
)
def test_what_a_policy_compares(options: dict[str, Any], solutions: bool, masks: bool) -> None:
    policy = policy_for(PruneConfig(sparsity=0.9, **options))
    assert (policy.compares_solutions, policy.compares_masks) == (solutions, masks)


class Losses:
    """Held-out losses that only tell which kind they are."""

    losses, screening_losses, worth = "all", "screening", "worth"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"method": "auto"}, Losses.worth),
        ({"method": "auto", "recover": False}, Losses.screening_losses),
        ({"method": "chita++", "recover": True}, Losses.screening_losses),
    ],
)
def test_auto_with_recovery_compares_losses_after_training(
    options: dict[str, Any], expected: str
) -> None:
    policy: Any = policy_for(PruneConfig(sparsity=0.9, **options))
    assert policy.other_losses(Losses(), lambda: Losses.worth) == expected
