"""Scale: time and peak memory against p, n, k and the number of ranks, beside their bounds.

Gradients and CHITA-BSO on networks of the zoo, and on random matrices of the sizes between them.
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

BLOCK = 10_000  # the paper's for ResNet50
EXPLANATION = """\
Seconds are the best of three runs, or of fewer where these take more than 20 seconds. "Solve" is
CHITA-BSO over all columns, "blocks" the same in blocks of 10^4. Their bound is measured in the same
run: one pass over A (A^T r), which IHT cannot do without, and one Gram product A_S A_S^T, which the
backsolve cannot do without. The peak is that of the gradients and the solves on the largest rank;
"A GB" is a rank's share of A. Networks have random weights and images; a random A stands for the
sizes between them. Ranks are processes on the CPU with one thread each: with more of them than
cores, seconds fall no further."""


@dataclass(frozen=True)
class Scale:
    """The sizes along each axis; the others stay at those of `network` with `samples` rows.

    Attributes:
        network: that n, k and ranks are varied on.
        networks: of different p, each with `least` rows.
        weights: p of random matrices, each with `least` rows.
        rows: n.
        sparsities: which make k.
        ranks: the processes that share the work.
        samples: n where it is not varied.
        least: n where p is varied.
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
        """All sizes, axis by axis."""
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
        """One seed: costs do not depend on it."""
        given = next(iter(bench.subjects.values())).device

        def cell(case: Case) -> Cell:
            device = torch.device("cpu") if case.axis == "ranks" else given  # they talk by gloo
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
    """A line of the table; a size without a record says what it takes."""
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
