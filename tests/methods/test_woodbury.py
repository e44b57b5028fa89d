"""WoodFisher's recursion: what it keeps, and what becomes of a broken one."""

from __future__ import annotations

import torch

from chita.methods.woodfisher import Woodbury, woodbury_memory
from chita.solver.algorithm import Layout
from chita.solver.blocks.block_batch import BlockBatch
from tests.solver.problems import random_problem


def test_rows_may_come_in_any_number_at_once() -> None:
    problem, batch = random_problem(0, n=10, p=16), BlockBatch(((0, 16),))
    first, *others = (Woodbury(at_once)(problem, batch).inverse for at_once in (1, 3, 10, 32))
    for other in others:
        torch.testing.assert_close(other, first, rtol=1e-10, atol=1e-10)


def test_memory_is_that_of_all_inverses() -> None:
    assert woodbury_memory(Layout((31360, 800, 200)), 1000) == 4 * 32360**2
    assert woodbury_memory(Layout((100, 30), 50), 1000) == 4 * (50**2 + 50**2 + 30**2)


def test_gradients_too_large_for_float32_leave_no_number() -> None:
    problem = random_problem(0, n=10, p=16, dtype=torch.float32)
    problem.matrix.whole().mul_(1e20)
    inverse = Woodbury(at_once=4)(problem, BlockBatch(((0, 16),))).inverse
    assert not bool(inverse.isfinite().all())
