"""The notebook: it executes, and is stored with outputs that name no machine."""

from __future__ import annotations

import json
import re
import runpy
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
NOTEBOOK = ROOT / "examples/prune_a_network.ipynb"
CALLS = (
    "prune",
    "sensitivity",
    "recover",
    "keep_masks",
    "save",
    "load",
    "accelerate",
    "export_onnx",
)


def stored() -> list[dict[str, Any]]:
    """The cells with code."""
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    return [cell for cell in cells if cell["cell_type"] == "code"]


def kinds(cell: dict[str, Any]) -> set[str]:
    """The types of the outputs of a cell."""
    return {kind for output in cell["outputs"] for kind in output.get("data", {"text/plain": ""})}


def test_it_is_stored_with_its_outputs() -> None:
    cells = stored()
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    assert all(cell["outputs"] for cell in cells)
    assert sum("image/png" in kinds(cell) for cell in cells) >= 3
    assert sum("text/html" in kinds(cell) for cell in cells) >= 4
    assert NOTEBOOK.stat().st_size < 250_000


def test_every_step_is_there() -> None:
    code = "\n".join("".join(cell["source"]) for cell in stored())
    assert [name for name in CALLS if f"chita.{name}(" not in code] == []


def test_nothing_names_a_machine_or_failed() -> None:
    text = NOTEBOOK.read_text(encoding="utf-8")
    without_images = re.sub(r'"image/png": "[^"]*"', "", text)
    assert re.findall(r"(?<![\w.<])/(?:\w+/)+\w+", without_images) == []
    assert not re.search(r"[A-Z]:\\\\|Traceback|stderr|site-packages|\.venv", without_images)
    assert set(json.loads(text)["metadata"]) == {"kernelspec", "language_info"}
    assert all(cell["metadata"] == {} for cell in json.loads(text)["cells"])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of the kernel's transport
def test_it_executes(onnx: None) -> None:
    for package in ("nbclient", "ipykernel", "matplotlib"):
        pytest.importorskip(package)
    executed = runpy.run_path(str(ROOT / "tools/run_notebook.py"))["execute"](NOTEBOOK)
    outputs = [cell.outputs for cell in executed.cells if cell.cell_type == "code"]
    assert all(outputs) and len(outputs) == len(stored())
    shown = " ".join(output.text for cell in outputs for output in cell if "text" in output)
    dense, pruned = map(float, re.findall(r"dense (\S+) %, pruned (\S+) %", shown)[0])
    assert pruned > dense - 4
    assert "same weights: True" in shown and "30,742 zeros" in shown
