"""Records with values of wrong types: a page, or a ChitaError, but no other exception."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
import safetensors.torch
import torch

from chita.errors import ChitaError
from chita.report.page.benchmark_charts import VIEWS
from chita.report.page.render import page_data, read_folder, render
from tests.report.page.folders import write_bench, write_gradual, write_prune, write_recover

VALUES = [None, True, float("nan"), "x", [1], {"a": 1}, 10**400, "\ud800"]


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of all values in JSON; only the first two items of a list."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value[:2])
    for name, item in items:
        yield from (
            places(item, (*path, name)) if isinstance(item, dict | list) else ((*path, name),)
        )


def with_value(content: Any, path: tuple[Any, ...], value: Any) -> Any:
    changed = copy.deepcopy(content)
    place = changed
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = value
    return changed


def make_page(folder: Path) -> bytes:
    return render(page_data(read_folder(folder))).encode(errors="replace")


def try_all(file: Path, contents: Iterator[Any]) -> None:
    drawn = 0
    for content in contents:
        file.write_text(json.dumps(content))
        try:
            drawn += bool(make_page(file.parent))
        except ChitaError as error:
            assert file.name in str(error)
    assert drawn > 0


@pytest.mark.slow
@pytest.mark.parametrize("write", [write_prune, write_gradual, write_recover])
def test_results(write: Callable[[Path], Any], tmp_path: Path) -> None:
    write(tmp_path / "run")
    file = tmp_path / "run/result.json"
    good = json.loads(file.read_text())
    try_all(file, (with_value(good, p, v) for p in list(places(good))[1:] for v in VALUES))


@pytest.mark.slow
def test_benchmarks(tmp_path: Path) -> None:
    write_bench(tmp_path)
    (file,) = tmp_path.glob("*.json")
    good = json.loads(file.read_text())
    good["rows"] = good["rows"][:4]
    changed = [with_value(good, p, v) for p in list(places(good))[1:] for v in VALUES]
    try_all(file, ({"benchmark": name, **content} for content in changed for name in VIEWS))
    try_all(file, ({**good, "benchmark": name, "rows": [{}, {"paper": 1}]} for name in VIEWS))


def test_nesting_without_end(tmp_path: Path) -> None:
    (tmp_path / "result.json").write_text('{"stages": ' + "[" * 100_000)
    with pytest.raises(ChitaError, match=r"result\.json"):
        make_page(tmp_path)


@pytest.mark.parametrize(
    "mask",
    [
        torch.ones(3, 4),
        torch.ones(3, 4, dtype=torch.bfloat16),
        torch.ones(3, 4, dtype=torch.int64),
        torch.ones((), dtype=torch.bool),
        torch.ones(0, 5, dtype=torch.bool),
        torch.ones(5, 0, dtype=torch.bool),
        torch.ones([1] * 40, dtype=torch.bool),
    ],
    ids=lambda mask: f"{mask.dtype}-{mask.ndim}",
)
def test_masks(mask: torch.Tensor, tmp_path: Path) -> None:
    write_prune(tmp_path / "run")
    safetensors.torch.save_file({"w": mask}, tmp_path / "run/masks.safetensors")
    try:
        make_page(tmp_path / "run")
    except ChitaError as error:
        assert "masks.safetensors" in str(error)


def test_masks_of_numpy_are_drawn(tmp_path: Path) -> None:
    write_prune(tmp_path / "run")
    masks = {"w": np.ones((3, 4), dtype=bool)}
    safetensors.numpy.save_file(masks, tmp_path / "run/masks.safetensors")
    assert make_page(tmp_path / "run")
