"""Stage policies: the rows of A for small and large networks."""

from __future__ import annotations

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
