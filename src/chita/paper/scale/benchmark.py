"""Time and peak memory against p, n, k and the number of ranks, with lower bounds.

The benchmark measures the gradients and CHITA-BSO on networks of the zoo, and CHITA-BSO on random
matrices of other sizes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

from chita.paper.benchmark import Bench
from chita.paper.cells import Cell, Record
from chita.paper.scale.case import Case, prunable_weights
from chita.paper.scale.fit import BOUNDS, MEMORY, Fit, draw_fits, fit_axis
from chita.paper.scale.measure import measure
from chita.paper.write import Report, Row, as_markdown
from chita.solver.matrix.memory import format_bytes

BLOCK = 10_000  # the paper's block size for ResNet50
EXPLANATION = """\
Seconds are the best of three runs, or of fewer if these take more than 20 seconds. "solve" is
CHITA-BSO over all columns, "blocks" is CHITA-BSO in blocks of 10^4. Their lower bound is measured
in the same run: one pass over A (A^T r), which IHT needs, and one Gram product A_S A_S^T, which the
backsolve needs. The peak is the largest memory of a rank during the gradients and the solves; "A
GB" is a rank's share of A. Networks have random weights and images; random matrices A fill in the
sizes between the networks. Ranks are CPU processes with one thread each; with more ranks than
cores, the time does not decrease further."""


@dataclass(frozen=True)
class Scale:
    """The sizes along each axis; the other sizes are those of `network` with `samples` rows.

    Attributes:
        network: the network on which n, k and the ranks vary.
        networks: the networks of the axis p, each with `least` rows.
        weights: the values of p of the random matrices, each with `least` rows.
        rows: the values of n.
        sparsities: the sparsities that determine the values of k.
        ranks: the numbers of processes.
        samples: n where k or the ranks vary.
        least: n where p varies.
    """

    network: str = "resnet20"
    networks: Sequence[str] = ("resnet20", "mobilenetv1", "resnet50")
    weights: Sequence[int] = (100_000, 1_000_000, 10_000_000)
    rows: Sequence[int] = (100, 300, 1000, 3000, 8000)
    sparsities: Sequence[float] = (0.5, 0.8, 0.9, 0.95)
    ranks: Sequence[int] = (1, 2, 4)
    samples: int = 1000
    least: int = 100

    def cases(self) -> list[Case]:
        """Return all cases, axis by axis."""
        p, n = prunable_weights(self.network), self.samples
        sizes: list[tuple[str | None, int]] = [(None, weights) for weights in self.weights]
        sizes += [(name, prunable_weights(name)) for name in self.networks]
        return [
            *(Case("p", name, p, self.least, block_size=BLOCK) for name, p in sizes),
            *(Case("n", self.network, p, rows) for rows in self.rows),
            *(Case("k", self.network, p, n, sparsity) for sparsity in self.sparsities),
            *(Case("ranks", self.network, p, n, ranks=ranks) for ranks in self.ranks),
        ]

    def cells(self, bench: Bench) -> list[Cell]:
        """Return the cells of all cases for one seed; costs do not depend on the seed."""
        given = next(iter(bench.subjects.values())).device

        def cell(case: Case) -> Cell:
            device = torch.device("cpu") if case.axis == "ranks" else given  # gloo
            key = {"bench": "scale", **asdict(case), "device": device.type}
            return Cell(key, lambda: measure(case, device))

        return [cell(case) for case in self.cases()]

    def report(self, records: Sequence[Record]) -> Report:
        rows = [_row(case, records) for case in self.cases()]
        fits = [fit for axis in BOUNDS for fit in fit_axis(axis, rows)]
        tables = [as_markdown(table) for table in ([*map(_exponent, fits)], rows) if table]
        return Report(
            title="Time and peak memory against p, n, k and ranks",
            rows=rows,
            text="\n\n".join([EXPLANATION, *tables]),
            draw=lambda figure: draw_fits(figure, fits),
        )


def _row(case: Case, records: Sequence[Record]) -> Row:
    """Return a row of the table; for a case without a record, state the memory it needs."""
    known = asdict(case).items()
    found: dict[str, Any] = next((r for r in records if known <= r["key"].items()), {})
    bound = found["pass"] + found["gram"] if found else None
    parts = ("gradients", "solve", "blocks", "pass", "gram", "factorisation")
    return {
        "axis": case.axis,
        "network": case.network or "random A",
        "p": case.p,
        "n": case.n,
        "k": case.k,
        "ranks": case.ranks,
        **{part: found.get(part) for part in parts},
        "solve / bound": _ratio(found.get("solve"), bound),
        "blocks / bound": _ratio(found.get("blocks"), bound),
        MEMORY: _ratio(found.get("peak_bytes"), 1e9),
        "A GB": case.matrix_bytes / case.ranks / 1e9,
        "note": None if found else f"not run; {format_bytes(case.needed_bytes)} must be free",
    }


def _ratio(first: float | None, second: float | None) -> float | None:
    return None if first is None or second is None else first / second


def _exponent(fit: Fit) -> Row:
    return {
        "axis": fit.axis,
        "part": fit.part,
        "from": fit.sizes[0],
        "to": fit.sizes[-1],
        "exponent": round(fit.exponent, 2),
        "bound": fit.bound,
    }
