"""Folders as prune, recover, gradual and bench write them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from torch import nn

import chita
from chita.files.run_folder import write_run
from chita.gradual.history import EpochRow, History
from chita.paper.write import Report, write_report
from tests.support.pruning import tiny

EVIL = "</script><script>alert(1)</script><!--"
ROWS: list[dict[str, Any]] = [
    {
        "network": "mlpnet",
        "method": method,
        "sparsity": sparsity,
        "choice": choice,
        "accuracy": accuracy,
        "standard_error": 0.5,
        "paper": paper,
    }
    for choice in ("grid", "auto")
    for method, sparsity, accuracy, paper in (
        ("magnitude", 0.9, 90.5, 90.3),
        ("magnitude", 0.98, 33.0, 32.25),
        ("chita++", 0.9, 96.5, 95.55),
        ("chita++", 0.98, 92.25, 90.73),
        ("cbs", 0.9, "needs ImageNet", None),
        ("cbs", 0.98, None, 55.45),
    )
]


FIXED = {"method": "chita++", "stages": 3, "samples": 16, "batch": 1, "ridge": 0.01}
HELD_OUT = {**FIXED, "ridge": "auto"}  # lambda is chosen by held-out losses
RECOVERED = {"stages": 3, "budget": "6 steps"}  # method="auto", with training

TIMES = [
    {"network": "mlpnet", "method": method, "block_size": size, "seconds": seconds}
    for method, size, seconds in (
        ("magnitude", None, 0.01),
        ("M-FAC as published, with a long name", 2000, 5.0),
        *((f"method {place}", None, 1.0) for place in range(9)),
        ("WF as published", 2000, 70.0),
    )
]


def write_prune(
    folder: Path, options: Mapping[str, Any] = MappingProxyType(FIXED), **more: Any
) -> dict[str, Any]:
    """A network of two layers, pruned, one with a hostile name; `more` goes into its record."""
    draw = torch.Generator().manual_seed(0)
    images = torch.randn(40, 6, dtype=torch.float64, generator=draw)
    batches = [(images, torch.randint(3, (40,), generator=draw))]
    result = chita.prune(tiny(), batches, sparsity=0.5, progress=False, **options)
    record = {"network": "mlpnet", "data": "random", "dense_accuracy": 40.0, "accuracy": 37.5}
    record = {**record, **result.to_dict(), **more}
    masks = {(EVIL if name == "0.weight" else name): mask for name, mask in result.masks.items()}
    for row in record["layers"]:
        row["name"] = EVIL if row["name"] == "0.weight" else row["name"]
    config = {"method": result.config.method, "note": EVIL}
    folder.mkdir(exist_ok=True)
    write_run(folder, result.model, masks, config=config, record=record)
    return record


def write_gradual(folder: Path, network: str = "mlpnet") -> History:
    """Four epochs, two of them after a pruning step."""
    rows = tuple(
        EpochRow(
            epoch, epoch % 2 == 1, (0.5, 0.75)[epoch > 2], 0.1, 0.05, 1 / epoch, 70.0 + epoch, 2.5
        )
        for epoch in range(1, 5)
    )
    model = nn.Linear(4, 4, bias=False)
    mask = torch.eye(4, dtype=torch.bool)
    history = History(rows, 74.0, 16, 4)
    record = {
        "network": network,
        "method": "chita-bso",
        "dense_accuracy": None,
        **history.to_dict(),
    }
    folder.mkdir(exist_ok=True)
    write_run(folder, model, {"weight": mask}, config={"method": "chita-bso"}, record=record)
    return history


def write_recover(folder: Path, **more: Any) -> dict[str, Any]:
    """A pruned layer that was trained further; `more` goes into its record."""
    given = {"network": "mlpnet", "source": "runs/pruned", "data": "random", "seed": 0}
    record = {
        **given,
        "dense_accuracy": 96.875,
        "accuracy_before": 95.025,
        "accuracy": 95.325,
        "weights": 16,
        "nonzeros": 4,
        "loss_before": 0.0863,
        "loss_after": 0.0698,
        "kept": True,
        "steps": 100,
        "seconds": 0.53,
        **more,
    }
    mask = torch.eye(4, dtype=torch.bool)
    folder.mkdir(exist_ok=True)
    write_run(folder, nn.Linear(4, 4, bias=False), {"weight": mask}, config=given, record=record)
    return record


def write_bench(
    folder: Path, name: str = "table1", rows: list[dict[str, Any]] | None = None
) -> None:
    """A benchmark's four files."""
    folder.mkdir(exist_ok=True)
    text = "What it shows,\non two lines.\n\n| a table |"
    write_report(folder, name, Report("A title", rows or ROWS, text, lambda figure: None))


KINDS: dict[str, Callable[[Path], Any]] = {  # of folders that have a page
    "prune": write_prune,
    "mine": lambda folder: write_prune(folder, HELD_OUT, network="mine"),
    "recovery": lambda folder: write_prune(folder, RECOVERED),
    "recover": write_recover,
    "gradual": write_gradual,
    "bench": write_bench,
    "names": lambda folder: write_bench(folder, "runtime", TIMES),
}
