"""The benchmark at its smallest: a few sizes of each axis, every one in processes of its own."""

from pathlib import Path

import pytest

from chita.cli.bench import BENCHMARKS
from chita.paper.benchmark import run_benchmark
from chita.paper.scale.benchmark import Scale
from tests.paper.small import embedded, read_csv
from tests.support.messages import says

pytestmark = pytest.mark.slow

HUGE = 10**12  # weights that fit nowhere
SMALL = Scale(
    network="mlpnet",
    networks=(),
    weights=(20_000, 100_000, HUGE),
    rows=(20, 500),
    sparsities=(0.5,),
    ranks=(2,),
    samples=20,
    least=20,
)


def test_every_axis_is_measured_once(tmp_path: Path) -> None:
    run_benchmark("scale", SMALL, embedded(tmp_path), tmp_path)
    kept = (tmp_path / "cells.jsonl").read_text()
    run_benchmark("scale", SMALL, embedded(tmp_path), tmp_path)
    assert (tmp_path / "cells.jsonl").read_text() == kept

    rows = read_csv(tmp_path / "scale.csv")
    assert [row["axis"] for row in rows] == ["p", "p", "p", "n", "n", "k", "ranks"]
    huge = rows.pop(2)
    assert says(huge["note"], "120 TB")
    assert huge["solve"] == ""
    for row in rows:
        assert row["note"] == ""
        bound = float(row["pass"]) + float(row["gram"])
        assert float(row["solve / bound"]) == pytest.approx(float(row["solve"]) / bound)
        assert (row["gradients"] == "") == (row["network"] == "random A")
        assert (row["blocks"] == "") == (row["axis"] != "p")
    few, many = (row for row in rows if row["axis"] == "n")
    assert float(many["gram"]) > float(few["gram"])
    assert float(many["peak GB"]) > float(few["peak GB"]) + 0.9 * (500 - 20) * 32_360 * 4e-9
    assert rows[-2]["k"] == "16180"
    assert float(rows[-1]["A GB"]) == pytest.approx(20 * 32_360 * 4e-9 / 2)

    text = (tmp_path / "scale.md").read_text()
    assert "| axis | part | from | to | exponent | bound |" in text
    assert "| n | factorisation | 20 | 500 |" in text
    assert "| k | solve |" not in text  # one size has no exponent
    assert (tmp_path / "scale.png").stat().st_size > 5000


def test_the_sizes_reach_as_far_as_they_should() -> None:
    full, quick = BENCHMARKS["scale"].full, BENCHMARKS["scale"].quick
    assert isinstance(full, Scale)
    assert isinstance(quick, Scale)
    weights = [case.p for case in full.cases() if case.axis == "p"]
    rows = [case.n for case in full.cases() if case.axis == "n"]
    assert (min(weights), max(weights)) == (100_000, 25_502_912)
    assert (min(rows), max(rows)) == (100, 8000)
    assert max(case.p for case in quick.cases()) == 1_000_000
    assert max(case.n for case in quick.cases()) == 1000
    # The n x n system is the smaller one throughout, as the bounds assume.
    assert all(case.k > case.n for case in [*full.cases(), *quick.cases()])
