"""`chita bench imagenet`: the same images for all methods, and a report with standard errors."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from chita import ChitaError, zoo
from chita.model.losses import mean_loss
from chita.paper import timed_prune as module
from chita.paper.benchmark import Bench, run_benchmark
from chita.paper.imagenet import ARGUMENTS, QUICK, SAMPLES, ImageNetBench, repaired_batch_norm
from chita.paper.imagenet_layout import error_of_test, imagenet_rows, imagenet_text
from chita.paper.method_tables import DENSE
from chita.report.published import EMBEDDED
from tests.paper.small import embedded, read_csv
from tests.support.messages import naming


def test_cells_are_computed_once_and_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[Any, int]] = []

    def counted(model: nn.Module, batches: Any, **keywords: Any) -> Any:
        calls.append((keywords["sparsity"], sum(len(labels) for _, labels in batches)))
        return prune(model, batches, **keywords)

    prune = module.prune
    monkeypatch.setattr(module, "prune", counted)
    methods = {name: QUICK.methods[name] for name in ("magnitude", "CHITA")}
    for _ in range(2):  # the second run finds its cells
        run_benchmark("imagenet", replace(QUICK, methods=methods), embedded(tmp_path), tmp_path)
    assert calls == [(sparsity, 540) for sparsity in (0.95, 0.95, "2:4", "2:4")]  # 60 held out
    rows = read_csv(tmp_path / "imagenet.csv")
    assert [(row["method"], row["sparsity"]) for row in rows] == [
        (DENSE, "0.0"), ("magnitude", "0.95"), ("CHITA", "0.95"), ("magnitude", "2:4"),
        ("CHITA", "2:4"),
    ]  # fmt: skip
    dense, magnitude, solved = (float(row["accuracy"]) for row in rows[:3])
    assert dense > 96 and magnitude < solved < dense
    assert f"{dense:.1f} (" in (tmp_path / "imagenet.md").read_text()
    assert (tmp_path / "imagenet.png").stat().st_size > 5000


def subjects(tmp_path: Path) -> Bench:
    (subject,) = embedded(tmp_path).subjects.values()
    return Bench(
        {
            name: replace(
                subject, name=name, trained=replace(subject.trained, network=zoo.get(name))
            )
            for name in SAMPLES
        },
        seeds=1,
    )


def test_the_full_size(tmp_path: Path) -> None:
    keys = [cell.key for cell in ImageNetBench().cells(subjects(tmp_path))]
    assert len(keys) == 2 * (1 + 7 * 8)
    assert len({json.dumps(key, sort_keys=True) for key in keys}) == len(keys)
    rows = {(key["network"], key["row"]): key.get("arguments", {}) for key in keys}
    assert rows["resnet50", "CHITA"]["samples"] == 500
    assert rows["mobilenetv1-folded", "CHITA"]["samples"] == 1000
    assert rows["resnet50", "auto"] == {"method": "auto"} == ARGUMENTS["auto"]
    with pytest.raises(ChitaError, match=naming("resnet50", "chita weights get resnet50")):
        ImageNetBench().cells(embedded(tmp_path))


def scaled_network(factor: float) -> tuple[nn.Module, list[tuple[torch.Tensor, torch.Tensor]]]:
    """Batch norm before a classifier of signs, whose variance is wrong by a factor."""
    generator = torch.Generator().manual_seed(0)
    inputs = 3 * torch.randn(200, 2, generator=generator)
    labels = (inputs[:, 0] > 0).long()
    norm, linear = nn.BatchNorm1d(2), nn.Linear(2, 2, bias=False)
    with torch.no_grad():
        linear.weight.copy_(torch.tensor([[-4.0, 0.0], [4.0, 0.0]]))
        norm.running_mean.fill_(1.0 - 1.0 / factor)
        norm.running_var.fill_(9.0 * factor)
    return nn.Sequential(norm, linear).eval(), [(inputs, labels)]


def test_batch_norm_is_reestimated_where_the_loss_falls() -> None:
    model, batches = scaled_network(10_000.0)
    before = mean_loss(model, batches)
    assert repaired_batch_norm(model, batches, batches) == "re-estimated"
    assert mean_loss(model, batches) < before


def test_batch_norm_is_kept_bit_for_bit_where_it_is_better() -> None:
    model, batches = scaled_network(1e-4)  # large outputs, whose signs are right
    model[0].running_mean.zero_()
    before = {name: each.clone() for name, each in model.state_dict().items()}
    assert repaired_batch_norm(model, batches, batches) == "kept"
    assert all(torch.equal(before[name], each) for name, each in model.state_dict().items())


def test_a_network_without_batch_norm_has_nothing_to_repair() -> None:
    assert repaired_batch_norm(nn.Linear(2, 2), [], []) is None


def record(network: str, row: str, sparsity: float | str, accuracy: float, **more: Any) -> Any:
    key = {"network": network, "row": row, "sparsity": sparsity, "seed": 0}
    return {"key": key, "accuracy": accuracy, "test_images": 1000, **more}


def test_the_papers_rows_are_beside_ours() -> None:
    records = [
        record("mobilenetv1-folded", DENSE, 0.0, 70.0),
        record("mobilenetv1-folded", "CHITA++", 0.7, 60.0, seconds=3.0, training_steps=0),
        record("mobilenetv1-folded", "LAMP", 0.7, 50.0, seconds=1.0, training_steps=0),
        record("mobilenetv1-folded", "CHITA", "2:4", 55.0, seconds=1.0, training_steps=0),
        record("resnet50", "CHITA", 0.7, 72.0, batch_norm="kept", seconds=9.0, training_steps=0),
    ]
    rows = imagenet_rows(records)
    assert [row["paper"] for row in rows] == [71.95, 66.42, None, None, None]
    assert rows[-1]["batch_norm"] == "kept"
    text = imagenet_text(rows)
    for part in ("60.0 (1.5)", "16,000", "75.29", "## resnet50, 1,000 test images"):
        assert part in text


def test_the_standard_error_is_that_of_a_share() -> None:
    """Brute force: the spread of the share of right answers over many sets of 1,000 images."""
    generator = torch.Generator().manual_seed(0)
    shares = (torch.rand(4000, 1000, generator=generator) < 0.7).double().mean(1)
    assert error_of_test(70.0, 1000) == pytest.approx(100 * shares.std().item(), rel=0.05)
    assert error_of_test(100.0, 1000) == 0


def test_quick_runs_on_the_embedded_network() -> None:
    assert list(QUICK.networks) == [EMBEDDED]
