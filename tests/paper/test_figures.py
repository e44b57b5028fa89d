"""The benchmarks that make figures, at their smallest."""

from dataclasses import replace
from pathlib import Path

import pytest

from chita import zoo
from chita.paper.benchmark import Bench, Benchmark, run_benchmark
from chita.paper.first_order import FirstOrder
from chita.paper.objective import Objective
from chita.paper.ridge import RidgeEffect
from chita.paper.runtime import Runtime
from chita.paper.schedules import MESHES, Schedules, StageSetting
from tests.paper.small import embedded, read_csv

pytestmark = pytest.mark.slow


def run(benchmark: Benchmark, out: Path, seeds: int = 1) -> list[dict[str, str]]:
    run_benchmark("it", benchmark, embedded(out, seeds), out)
    assert (out / "it.png").stat().st_size > 5000
    assert "| --- |" in (out / "it.md").read_text()
    return read_csv(out / "it.csv")


def test_runtime(tmp_path: Path) -> None:
    rows = run(Runtime(samples=20, repeats=1, quick=True), tmp_path)
    assert list(rows[0]) == [
        "network", "method", "block_size", "seconds", "runs", "times_chita", "objective", "paper",
    ]  # fmt: skip
    of = {row["method"]: row for row in rows}
    assert {"CHITA", "CHITA-CD", "M-FAC", "M-FAC as published", "WF as published", "MP"} <= set(of)
    assert float(of["CHITA"]["times_chita"]) == 1
    for published, fast in (("M-FAC as published", "M-FAC"), ("WF as published", "WF")):
        assert float(of[published]["objective"]) == pytest.approx(
            float(of[fast]["objective"]), rel=1e-2
        )
        assert float(of["CHITA"]["objective"]) <= float(of[fast]["objective"])
    assert float(of["CHITA"]["objective"]) < float(of["MP"]["objective"])
    assert all(float(row["seconds"]) > 0 for row in rows)


def test_objective(tmp_path: Path) -> None:
    rows = run(Objective((0.5, 0.95), samples=20, quick=True), tmp_path)
    assert list(rows[0]) == ["network", "method", "sparsity", "objective", "standard_error"]
    objective = {(row["method"], row["sparsity"]): float(row["objective"]) for row in rows}
    for method in {method for method, _ in objective}:
        assert objective[method, "0.5"] < objective[method, "0.95"]
        assert objective["CHITA", "0.95"] <= objective[method, "0.95"] * 1.05


def test_schedules(tmp_path: Path) -> None:
    settings = {"mlpnet": StageSetting(lam=1e-3, samples=200)}
    rows = run(Schedules(stages=3, target=0.95, settings=settings), tmp_path)
    assert list(rows[0]) == [
        "network", "schedule", "images", "stage", "sparsity", "accuracy", "standard_error",
    ]  # fmt: skip
    assert len(rows) == 15
    assert {row["images"] for row in rows} == {"plain"}  # MLPNet is trained without augmentation
    of = {(row["schedule"], row["stage"]): row for row in rows}
    assert [of["linear", stage]["sparsity"] for stage in "123"] == ["0.2", "0.575", "0.95"]
    assert [of["exponential", stage]["sparsity"] for stage in "123"] == ["0.2", "0.7", "0.95"]
    assert of["geometric", "2"]["sparsity"] == "0.8"
    first = {name: float(row["accuracy"]) for (name, stage), row in of.items() if stage == "1"}
    last = {name: float(row["accuracy"]) for (name, stage), row in of.items() if stage == "3"}
    assert first["linear"] > 96
    assert last["linear"] < first["linear"]
    assert last["constant"] > first["constant"] + 1  # each stage mends the one before


def test_schedules_tell_augmented_images_from_plain_ones(tmp_path: Path) -> None:
    """ResNet20's images are augmented in all meshes; the paper's mesh has plain ones too."""
    (subject,) = embedded(tmp_path).subjects.values()
    trained = replace(subject.trained, network=zoo.get("resnet20"))
    resnet20 = replace(subject, name="resnet20", trained=trained)
    keys = [cell.key for cell in Schedules().cells(Bench({"resnet20": resnet20}, 1))]
    images = {mesh: [k["images"] for k in keys if k["schedule"] == mesh] for mesh in MESHES}
    assert images.pop("exponential") == ["augmented", "plain"]
    assert set(images) == {"geometric", "linear", "polynomial", "constant"}
    assert all(each == ["augmented"] for each in images.values())


def test_ridge(tmp_path: Path) -> None:
    small = RidgeEffect(100, iterations=(0, 20, 200), sparsities=(0.98,), ridges=(1e-3, 1e-2))
    rows = run(small, tmp_path, seeds=2)
    along = [row for row in rows if row["iterations"]]
    assert len(along) == 12
    assert len(rows) == 15
    distance = {
        (row["run"], float(row["ridge"]), row["iterations"]): float(row["distance"])
        for row in along
    }
    for method in ("IHT", "CHITA-CD"):
        assert distance[method, 0, "200"] > 1.05 * distance[method, 0.01, "200"]
        assert distance[method, 0, "0"] == distance[method, 0.01, "0"]
    assert distance["IHT", 0, "200"] > distance["IHT", 0, "20"]
    assert (
        "| sparsity | no ridge | best ridge | lambda | gain |" in (tmp_path / "it.md").read_text()
    )


def test_first_order(tmp_path: Path) -> None:
    rows = run(FirstOrder((1, 16), samples=60, stages=3, trace_images=1000), tmp_path)
    accuracy = {(row["m"], row["alpha"]): float(row["accuracy"]) for row in rows}
    assert accuracy["1", "1/m"] == accuracy["1", "1"]
    assert accuracy["16", "1/m"] > accuracy["16", "1"] + 5
    for row in rows:
        ratio = float(row["estimated_alpha"]) / float(row["one_over_m"])
        assert 0.25 < ratio < 4  # the paper's finding
