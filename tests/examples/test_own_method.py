"""The example of a method of one's own, in every comparison of `chita bench` at small size."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import chita
from chita import ChitaError
from chita.cli import bench as bench_module
from chita.methods import BUILT_IN, METHODS, registry
from chita.paper.added_methods import added_methods, source_key
from chita.paper.objective import Objective
from chita.paper.recovery import Group, RecoveryBench
from chita.paper.robustness.benchmark import Robustness
from chita.paper.runtime import Runtime
from chita.paper.settings import Setting, quick_grid
from chita.paper.table1 import Table1
from tests.paper.small import read_csv
from tests.support.command import invoke
from tests.support.messages import naming

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples/own_method.py"


@pytest.fixture(autouse=True)
def registry_restored() -> Iterator[None]:
    methods, modules = dict(METHODS), set(sys.modules)
    registry._load_entry_points.cache_clear()
    yield
    METHODS.clear()
    METHODS.update(methods)
    for name in set(sys.modules) - modules:
        if name.endswith("own_method"):
            del sys.modules[name]


def few(network: str, method: str) -> list[Setting]:
    """The settings of two methods of chita, and of those that are added."""
    wanted = method not in BUILT_IN or method in ("magnitude", "obd")
    return [replace(s, samples=30) for s in quick_grid(network, method)] if wanted else []


SMALL: dict[str, Any] = {
    "table1": Table1({"mlpnet": (0.9,)}, few),
    "recovery": RecoveryBench(
        (Group("mlpnet", 600, (0.9,)),),
        {"magnitude": {"method": "magnitude"}},
        {"budget": "10 steps"},
    ),
    "robustness": Robustness(
        ("mlpnet-embedded",), {"magnitude": {"method": "magnitude"}}, samples=20
    ),
    "objective": Objective((0.8, 0.9), samples=20, quick=True),
    "runtime": Runtime(samples=20, repeats=1, quick=True),
}


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, benchmark in SMALL.items():
        sizes = replace(bench_module.BENCHMARKS[name], quick=benchmark)
        monkeypatch.setitem(bench_module.BENCHMARKS, name, sizes)


def bench(name: str, out: Path, file: Path = EXAMPLE) -> list[dict[str, str]]:
    """Run the command of the page; return the rows of the table."""
    invoke("bench", name, "--quick", "--import", file, "--out", out, "--device", "cpu")
    assert (out / f"{name}.png").stat().st_size > 5000
    assert "taylor" in (out / f"{name}.md").read_text()
    return read_csv(out / f"{name}.csv")


def prune_briefly(*given: Any, **arguments: Any) -> chita.PruneResult:
    brief = {"budget": "5 steps"} if arguments.get("recover") else {}
    return chita.prune(*given, **{**arguments, **brief})


def test_the_page_shows_the_example() -> None:
    page = (ROOT / "docs/howto/add_a_method.md").read_text()
    block = page.split("```python\n")[1].split("```")[0]
    _, code = block.split('"""\n', 1)
    assert EXAMPLE.read_text().endswith(code)


def test_the_command_prunes_with_the_method() -> None:
    text = invoke(
        "prune", "mlpnet", "--import", EXAMPLE, "--method", "taylor", "--sparsity", "0.9",
        "--samples", "30", "--device", "cpu", "--json",
    )  # fmt: skip
    record = json.loads(text.splitlines()[-1])
    assert (record["method"], record["nonzeros"]) == ("taylor", 3235)


def test_table_1_has_the_method_beside_the_others(tmp_path: Path) -> None:
    rows = {(row["method"], row["choice"]): row for row in bench("table1", tmp_path)}
    for method in ("MP", "OBD", "taylor"):
        assert 10 < float(rows[method, "auto"]["accuracy"]) < 97
    assert rows["taylor", "grid"]["paper"] == ""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "methods"),
    [
        ("recovery", {"auto", "magnitude", "taylor"}),
        ("robustness", {"dense", "magnitude", "taylor", "taylor, recovery"}),
        ("objective", {"MP", "OBD", "CHITA", "taylor"}),
        ("runtime", {"MP", "OBD", "CHITA", "taylor"}),
    ],
)
def test_the_other_comparisons_have_it_too(
    name: str, methods: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("objective", "runtime"):  # three methods of chita are enough here
        everything = sys.modules[f"chita.paper.{module}"].contenders
        monkeypatch.setattr(
            f"chita.paper.{module}.contenders",
            lambda network, quick, of=everything: [
                each for each in of(network, quick=quick) if each.name in methods
            ],
        )
    monkeypatch.setattr("chita.paper.runtime.as_published", list)
    monkeypatch.setattr("chita.paper.timed_prune.prune", prune_briefly)
    rows = bench(name, tmp_path)
    assert {row["method"] for row in rows} == methods
    figure = {"objective": "objective", "runtime": "seconds"}.get(name, "accuracy")
    assert all(float(row[figure]) > 0 for row in rows)


def test_an_edited_method_is_computed_again_and_no_other(tmp_path: Path) -> None:
    file, out = tmp_path / "my_own_method.py", tmp_path / "out"
    shutil.copy(EXAMPLE, file)
    before = bench("table1", out, file)
    cells = (out / "cells.jsonl").read_text().splitlines()
    bench("table1", out, file)
    assert (out / "cells.jsonl").read_text().splitlines() == cells
    del METHODS["taylor"], sys.modules["my_own_method"]  # as in a new process
    file.write_text(file.read_text().replace("problem.w0 * gradient", "problem.w0"))
    after = bench("table1", out, file)
    new = [
        json.loads(line) for line in (out / "cells.jsonl").read_text().splitlines()[len(cells) :]
    ]
    assert {record["key"]["method"] for record in new} == {"taylor"} and len(new) == 2
    changed = [row["method"] for row, other in zip(before, after, strict=True) if row != other]
    assert set(changed) == {"taylor"}


def test_a_name_of_another_row_is_refused(tmp_path: Path) -> None:
    chita.register_method(replace(METHODS["obd"], name="OBD"))
    with pytest.raises(ChitaError, match=naming("'OBD'")):
        invoke("bench", "table1", "--quick", "--out", tmp_path, "--device", "cpu")


def test_methods_of_chita_have_no_source_in_their_keys() -> None:
    assert added_methods() == []
    assert all(source_key(method) == {} for method in METHODS.values())
