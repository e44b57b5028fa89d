"""Windows of columns: how often the rows are asked for again."""

import torch

from chita.solver.matrix.in_memory import Target
from chita.solver.matrix.recomputed import WindowTarget
from tests.solver.matrix.matrices import P, demand_of, dense, write


def test_reads_in_order_cost_a_pass_for_each_window() -> None:
    A = dense()
    passes: list[tuple[int, int]] = []

    def again(target: Target) -> None:
        passes.append((target.first, target.last))
        write(A, target)

    window = WindowTarget(demand_of(A), 1000)
    write(A, window)
    matrix = window.matrix(again)
    del window
    for start in range(0, P, 300):
        stop = min(start + 300, P)
        assert torch.equal(matrix.read(start, stop), A.t()[start:stop])
    # Reads that run past the end of a window begin the next one.
    assert passes == [(900, 1900), (1800, 2800), (2700, 3700), (3600, 4600), (4500, P)]
    assert torch.equal(matrix.read(0, 1500), A.t()[:1500])  # wider than a window
    assert passes[-1] == (0, 1500)
