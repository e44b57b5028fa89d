from collections.abc import Sequence
from pathlib import Path

import pytest

from chita.paper.benchmark import Bench, run_benchmark
from chita.paper.cells import Cell, Record
from chita.paper.write import Report, as_markdown
from tests.paper.small import embedded, read_csv
from tests.support.messages import says


class Pruned:
    """A benchmark whose table has the pruned networks, and not the dense one."""

    def cells(self, bench: Bench) -> list[Cell]:
        return [Cell({"method": name}, lambda: {}) for name in ("dense", "magnitude", "auto")]

    def report(self, records: Sequence[Record]) -> Report:
        names = (record["key"]["method"] for record in records)
        rows = [{"method": name} for name in names if name != "dense"]
        return Report(title="pruned", rows=rows, text=as_markdown(rows), draw=lambda figure: None)


def test_the_report_covers_the_cells_of_all_runs(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bench = embedded(tmp_path)
    run_benchmark("it", Pruned(), bench, tmp_path, ["dense"])
    assert says(caplog.text, "it", str(tmp_path)) and not (tmp_path / "it.csv").exists()
    run_benchmark("it", Pruned(), bench, tmp_path, ["auto"])
    assert [row["method"] for row in read_csv(tmp_path / "it.csv")] == ["auto"]
    run_benchmark("it", Pruned(), bench, tmp_path, ["magnitude"])
    assert [row["method"] for row in read_csv(tmp_path / "it.csv")] == ["magnitude", "auto"]
