"""Methods and curvature sources of a user: one file each, through every interface of chita."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from typer.testing import CliRunner

import chita
from chita import ChitaError
from chita.cli import bench as bench_module
from chita.cli.app import app
from chita.curvature import Fisher, LocalModel, NoCurvature, gradient_matrix
from chita.methods import BUILT_IN, METHODS, get_method, registry
from chita.methods.chita import CHITA_BSO
from chita.methods.magnitude import MAGNITUDE
from chita.methods.obd import OBD
from chita.model.samples.stream import SampleStream
from chita.model.weights import Weights
from chita.paper.settings import RIDGES, Setting, paper_grid, quick_grid
from chita.paper.table1 import Table1
from chita.solver.matrix.in_memory import HeldMatrix
from chita.solver.problem import Problem
from tests.paper.small import read_csv
from tests.support.messages import naming
from tests.support.own_methods import REGISTERED
from tests.support.pruning import cut, points, prune_quietly, snapshot, tiny

pytestmark = pytest.mark.usefixtures("registry_restored")
PAGES = Path(__file__).parents[2] / "docs" / "howto"


@pytest.mark.parametrize("page", ["add_a_method.md", "add_a_curvature_source.md"])
def test_the_examples_of_the_pages_run(page: str, capsys: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (PAGES / page).read_text(), re.DOTALL)
    exec(compile("\n\n".join(blocks), page, "exec"), {"__name__": "example"})
    assert "88 weights stay" in capsys.readouterr().out
    for name in set(METHODS) - set(BUILT_IN):  # those that the page only registers run as well
        result = prune_quietly(tiny(), [points(24)], method=name)
        assert result.nonzeros == 18


class ScaledFisher(Fisher):
    """Row i of A counts i + 1 times as much as row 0."""

    def at(self, w0: Tensor) -> LocalModel:
        local = super().at(w0)
        scale = torch.arange(1, local.matrix.n + 1, dtype=w0.dtype)
        return replace(
            local, matrix=HeldMatrix(local.matrix.whole() * scale), alpha=local.alpha * scale
        )


def test_a_curvature_source_is_one_class() -> None:
    """A method with a source of this file prunes as `chita.solve` does on the scaled A."""
    chita.register_method(replace(CHITA_BSO, name="scaled", curvature=ScaledFisher, streams=False))
    model, batches = tiny(), tuple(cut(points(24), 24))
    weights = Weights(model)
    w0 = weights.vector()
    A = gradient_matrix(model, weights, SampleStream(batches), rows=12, batch=2).matrix.whole().t()
    scale = torch.arange(1, 13, dtype=torch.float64)
    result = prune_quietly(model, batches, method="scaled", first_order=False, drop_dead=False)
    truth = chita.solve(
        scale[:, None] * A, w0, 18, lam=0.01, layers=list(weights.sizes), iterations=5
    )
    torch.testing.assert_close(Weights(model).vector(), truth.w)
    assert result.stages[0].objective == pytest.approx(truth.objective)
    with_first_order = prune_quietly(tiny(), batches, method="scaled")
    assert with_first_order.stages[0].objective != pytest.approx(truth.objective)


def test_the_options_of_a_source_follow_from_what_it_needs() -> None:
    chita.register_method(replace(OBD, name="scaled", curvature=ScaledFisher))
    chita.register_method(replace(MAGNITUDE, name="plain"))
    prune_quietly(tiny(), [points(24)], method="scaled", metric="fisher", drop_dead=True)
    with pytest.raises(ChitaError, match=r"metric='fisher'.*'plain'.*scaled"):
        prune_quietly(tiny(), [points(24)], method="plain", metric="fisher")
    with pytest.raises(ChitaError, match=r"drop_dead=True.*'plain'.*scaled"):
        prune_quietly(tiny(), [points(24)], method="plain", drop_dead=True)


def test_a_method_is_registered_once() -> None:
    mine = replace(MAGNITUDE, name="mine")
    assert chita.register_method(mine) is mine and get_method("mine") is mine
    for name in ("mine", "magnitude"):
        with pytest.raises(ChitaError, match=f"'{name}'"):
            chita.register_method(replace(OBD, name=name))
    result = chita.prune(tiny(), [points(24)], sparsity=0.5, method="mine", progress=False)
    assert result.nonzeros == 36 and result.stages[0].ridge is None


@dataclass(frozen=True)
class Returning:
    """An algorithm whose result is a function of the problem and k."""

    result: Callable[[Problem, int], Any]

    def run(self, problem: Problem, k: int, layout: Any, options: Any, trace: Any) -> Any:
        return self.result(problem, k)


class FourArguments:
    def run(self, problem: Problem, k: int, options: Any, trace: Any) -> Any:
        return problem.start(k), True


@pytest.mark.parametrize(
    ("wrong", "names"),
    [
        ("magnitude", "method"),
        (replace(MAGNITUDE, name=" "), "name"),
        (replace(MAGNITUDE, name="mine", curvature="fisher"), "curvature.*'fisher'"),
        (replace(MAGNITUDE, name="mine", algorithm=len), "algorithm"),
        (replace(MAGNITUDE, name="mine", algorithm=Returning), naming("algorithm", "Returning")),
        (replace(MAGNITUDE, name="mine", algorithm=FourArguments()), naming("algorithm", "layout")),
        (replace(MAGNITUDE, name="mine", options={"tol": 1}), naming("options", {"tol": 1})),
    ],
)
def test_what_is_not_a_method_is_refused(wrong: object, names: str) -> None:
    with pytest.raises(ChitaError, match=names):
        chita.register_method(wrong)  # type: ignore[arg-type]
    assert tuple(METHODS) == BUILT_IN


@pytest.mark.parametrize(
    ("result", "got"),
    [
        (lambda problem, k: None, "NoneType"),
        (lambda problem, k: problem.start(k), re.compile(r"got Iterate\Z")),
        (lambda problem, k: (problem.start(k).w, True), "(Tensor, bool)"),
        (lambda problem, k: (problem.start(k), None), "(Iterate, NoneType)"),
        (lambda problem, k: (problem.start(k), True, 0), "(Iterate, bool, int)"),
    ],
)
def test_an_algorithm_returns_a_point_and_whether_it_converged(
    result: Callable[[Problem, int], Any], got: object
) -> None:
    chita.register_method(replace(MAGNITUDE, name="mine", algorithm=Returning(result)))
    with pytest.raises(ChitaError, match=naming("Returning", "(Iterate, bool)", got)):
        prune_quietly(tiny(), [points(24)], method="mine")


@pytest.mark.parametrize("kept", [0, 9, 19])
def test_a_method_keeps_as_many_weights_as_wanted(kept: int) -> None:
    few = Returning(lambda problem, k: (problem.start(kept), True))
    chita.register_method(replace(MAGNITUDE, name="mine", algorithm=few))
    model = tiny()
    before = snapshot(model)
    with pytest.raises(ChitaError, match=naming("'mine'", 18, kept)):
        prune_quietly(model, [points(24)], method="mine")
    assert all(torch.equal(before[name], now) for name, now in snapshot(model).items())


def test_an_error_inside_an_algorithm_is_its_own() -> None:
    def fail(problem: Problem, k: int) -> Any:
        raise TypeError("no luck")

    chita.register_method(replace(MAGNITUDE, name="mine", algorithm=Returning(fail)))
    with pytest.raises(TypeError, match="no luck"):
        prune_quietly(tiny(), [points(24)], method="mine")


def test_a_registered_method_is_a_row_of_table_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command computes its grid; only its cells are computed here, to save time."""
    (tmp_path / "mine_file.py").write_text(REGISTERED)

    def grid(network: str, method: str) -> list[Setting]:
        return quick_grid(network, method) if method not in BUILT_IN else []

    small = replace(bench_module.BENCHMARKS["table1"], quick=Table1({"mlpnet": (0.5,)}, grid))
    monkeypatch.setitem(bench_module.BENCHMARKS, "table1", small)
    arguments = ["bench", "table1", "--quick", "--import", str(tmp_path / "mine_file.py")]
    CliRunner().invoke(app, [*arguments, "--out", str(tmp_path)], catch_exceptions=False)
    rows = {(row["method"], row["choice"]): row for row in read_csv(tmp_path / "table1.csv")}
    row = rows["mine", "grid"]
    assert 0 < float(row["accuracy"]) < 100 and row["paper"] == "" and row["grid_size"] == "1"


@pytest.mark.parametrize("network", ["mlpnet", "resnet20", "mobilenetv1"])
def test_the_grid_of_a_registered_method(network: str) -> None:
    chita.register_method(replace(OBD, name="with gradients"))
    chita.register_method(replace(MAGNITUDE, name="without samples"))
    ridges = [setting.ridge for setting in paper_grid(network, "with gradients")]
    assert ridges == ["auto", *RIDGES]
    assert len(paper_grid(network, "without samples")) == 1


def test_an_unknown_method_is_named_with_all_known_ones() -> None:
    chita.register_method(replace(MAGNITUDE, name="zebra"))
    with pytest.raises(ChitaError, match=r"'magnitude'.*'zebra'.*got 'l1'"):
        get_method("l1")
    assert registry.methods_where(lambda method: method.curvature is NoCurvature) == (
        "lamp, magnitude, magnitude-uniform, zebra"
    )


def test_nothing_but_the_weights_depends_on_where_a_method_is_defined() -> None:
    """A copy of a built-in method under another name gives the same bits."""
    chita.register_method(replace(OBD, name="copy"))
    pruned = []
    for method in ("obd", "copy"):
        model = tiny()
        prune_quietly(model, [points(24)], method=method)
        pruned.append(snapshot(model))
    assert all(torch.equal(pruned[0][name], pruned[1][name]) for name in pruned[0])
