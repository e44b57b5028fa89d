"""`chita bench recovery`: the same samples and budget for all, and a report on them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from chita import ChitaError, zoo
from chita.paper import timed_prune as module
from chita.paper.benchmark import Bench, run_benchmark
from chita.paper.recovery import GROUPS, QUICK_GROUPS, RIVALS, Group, RecoveryBench
from chita.paper.recovery_layout import (
    AUTO,
    NO_RECOVERY,
    differences,
    recovery_rows,
    recovery_text,
)
from tests.paper.small import embedded, read_csv

SMALL = RecoveryBench(
    (Group("mlpnet", 600, (0.9, "2:4"), batch=50, also_without=(0.9,)),),
    {"magnitude": RIVALS["magnitude"], "OBD": {**RIVALS["OBD"], "samples": 50}},
    {"budget": "40 steps"},
)


@pytest.mark.slow
def test_every_method_has_the_samples_and_the_budget_of_auto(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[dict[str, Any]] = []

    def counted(model: Any, batches: Any, **keywords: Any) -> Any:
        calls.append({**keywords, "images": sum(len(labels) for _, labels in batches)})
        if keywords.get("recover") is False:
            keywords |= {"stages": 2, "samples": 20, "batch": 2}
        return prune(model, batches, **keywords)

    prune = module.prune
    monkeypatch.setattr(module, "prune", counted)
    for _ in range(2):  # the second run finds its cells
        run_benchmark("recovery", SMALL, embedded(tmp_path), tmp_path)
    assert len(calls) == 4 + 3
    rows = read_csv(tmp_path / "recovery.csv")
    methods = [AUTO, "magnitude", "OBD", NO_RECOVERY]
    assert [row["method"] for row in rows] == [*methods, *methods[:3]]
    records = [json.loads(line) for line in (tmp_path / "cells.jsonl").read_text().splitlines()]
    for found, call in zip(records, calls, strict=True):
        assert call["images"] == 600 == found["images"]
        without = found["key"]["row"] == NO_RECOVERY
        assert (found["gains"] is None) == without
        if not without:
            assert call["budget"] == "40 steps"
            assert 40 <= found["training_steps"] <= 1.3 * 40
    patterns = [each for each in records if each["key"]["sparsity"] == "2:4"]
    assert [each["sparsity"] for each in patterns] == [0.5] * 3
    text = (tmp_path / "recovery.md").read_text()
    assert "## mlpnet-embedded, 600 images, 1 seed" in text
    assert "## mlpnet-embedded, 600 images, patterns, 1 seed" in text
    assert (tmp_path / "recovery.png").stat().st_size > 5000


def test_networks_without_weights_are_left_out(tmp_path: Path) -> None:
    bench, sparsities = embedded(tmp_path, seeds=2), (0.9, 0.95, 0.98)
    keys = [cell.key for cell in RecoveryBench().cells(bench)]
    assert [(key["seed"], key["row"], key["sparsity"]) for key in keys] == [
        (seed, method, sparsity)
        for seed in (0, 1)
        for method in (AUTO, *RIVALS, NO_RECOVERY)
        for sparsity in sparsities
    ]
    quick = {key["sparsity"] for key in _keys(RecoveryBench(QUICK_GROUPS), bench)}
    assert quick == {0.95, 0.98}
    with pytest.raises(ChitaError, match="resnet20"):
        RecoveryBench([group for group in GROUPS if group.network != "mlpnet"]).cells(bench)


def test_the_full_size_has_all_groups_in_independent_cells(tmp_path: Path) -> None:
    (subject,) = embedded(tmp_path).subjects.values()
    subjects = {}
    for name in dict.fromkeys(group.network for group in GROUPS):
        trained = replace(subject.trained, network=zoo.get(name))
        subjects[name] = replace(subject, name=name, trained=trained)
    keys = _keys(RecoveryBench(), Bench(subjects, 3))
    assert len(keys) == 3 * ((1 + len(RIVALS)) * (3 + 3 + 3 + 2 + 2 + 3) + 4)
    assert len({json.dumps(key, sort_keys=True) for key in keys}) == len(keys)
    assert {key["batch"] for key in keys if key["network"] == "mobilenetv1-folded"} == {64}
    alone = {(key["network"], key["images"], key["sparsity"]) for key in keys
             if key["row"] == NO_RECOVERY}  # fmt: skip
    assert alone == {
        ("resnet20", 50_000, 0.9), *(("mlpnet", 60_000, s) for s in (0.9, 0.95, 0.98)),
    }  # fmt: skip


def _keys(benchmark: RecoveryBench, bench: Bench) -> list[dict[str, Any]]:
    return [cell.key for cell in benchmark.cells(bench)]


@pytest.mark.slow
def test_a_rival_that_fails_is_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    small = replace(
        SMALL,
        groups=(Group("mlpnet", 600, (0.9,)),),
        rivals={"magnitude": RIVALS["magnitude"], "wrong": {"method": "no such method"}},
    )
    run_benchmark("recovery", small, embedded(tmp_path), tmp_path)
    assert [row["method"] for row in read_csv(tmp_path / "recovery.csv")] == [AUTO, "magnitude"]
    assert "no such method" in caplog.text


def records_of(seed: int, **accuracies: float) -> list[dict[str, Any]]:
    """Return the record of each method, by its accuracy."""
    place = {"network": "net", "sparsity": 0.9, "seed": seed}
    figures = {"images": 1000, "dense": 91.0, "seconds": 2.0, "training_steps": 100,
               "gains": {"solve": 0.1, "recovery": 0.2}}  # fmt: skip
    return [
        {"key": {**place, "row": method}, **figures, "accuracy": accuracy}
        for method, accuracy in accuracies.items()
    ]


def test_what_does_not_differ_significantly_is_not_ranked() -> None:
    records = [
        record
        for seed, noise in enumerate((-0.1, 0.0, 0.1))
        for record in records_of(seed, auto=90 + noise, magnitude=90.1 - noise, LAMP=80 + noise)
    ]
    near = {row["method"]: row["near_best"] for row in recovery_rows(records)}
    assert near == {"auto": True, "magnitude": True, "LAMP": False}
    (alone,) = differences(records)
    assert (alone["best rival"], alone["at most 0.3 below"]) == ("magnitude", "met")
    assert alone["auto minus it"] == "-0.10 (0.12)"  # seed by seed: -0.3, -0.1, 0.1
    text = recovery_text(recovery_rows(records), records)
    assert "| 0.9 | magnitude | **90.10** (0.06) | 2.0 | 100 |" in text
    assert "| 0.9 | LAMP | 80.00 (0.06) |" in text


def test_without_recovery_is_no_rival() -> None:
    records = [
        record
        for seed in (0, 1)
        for record in records_of(
            seed, **{AUTO: 90.0 + seed / 10, "magnitude": 90.5, NO_RECOVERY: 95.0}
        )
    ]
    rows = {row["method"]: row for row in recovery_rows(records)}
    assert rows[NO_RECOVERY]["near_best"] is None and rows["magnitude"]["near_best"]
    (line,) = differences(records)
    assert (line["best rival"], line["at most 0.3 below"]) == ("magnitude", "NOT MET")
    assert differences(records_of(0, auto=90.0)) == []
