"""YAML files, some of which are hostile."""

from __future__ import annotations

import os
import time
import tracemalloc
from pathlib import Path

import pytest

from chita.errors import ChitaError
from chita.files.run_folder import config_beside
from chita.files.yaml_file import read_yaml
from chita.gradual.recipe import read_recipe
from chita.report.page.folder import read_folder
from chita.report.page.render import page_data, render
from tests.support.messages import naming

BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12)
)
MERGED = "a0: &a0 {k0: v}\n" + "".join(
    f"a{n}: &a{n} {{k{n}: v, <<: [{', '.join([f'*a{n - 1}'] * 9)}]}}\n" for n in range(1, 12)
)
HOSTILE = {
    "bomb": BOMB,
    "merged": MERGED,
    "circle": "a: &a [*a]\n",
    "deep": "a: " + "[" * 5000,
    "long": "a: " + "x" * 2_000_000,
    "no-number": "a: !!int ''\n",
    "no-date": "a: !!timestamp x\n",
    "no-bool": "a: !!bool x\n",
    "late": "a: 2026-99-99\n",
    "digits": "a: " + "9" * 5000,
    "object": "a: !!python/object/apply:os.system [true]\n",
    "bytes": "a: \udcff",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_are_refused_at_once(name: str, tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(HOSTILE[name], errors="surrogateescape")
    (tmp_path / "result.json").write_text('{"stages": []}')
    began = time.process_time()
    for read in (read_yaml, read_recipe, lambda path: read_folder(path.parent)):
        with pytest.raises(ChitaError, match=naming("config.yaml")) as caught:
            read(path)
        assert "\n" not in str(caught.value)
    assert config_beside(tmp_path / "model.safetensors") == {}
    assert time.process_time() - began < 20


def test_ordinary_aliases_are_read(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("include: &id001 [a, b]\nexclude: *id001\nmore: {<<: {k: 1}, l: 2}\n")
    names = ["a", "b"]
    assert read_yaml(path) == {"include": names, "exclude": names, "more": {"k": 1, "l": 2}}
    path.write_text("")
    assert read_yaml(path) is None


@pytest.mark.parametrize("name", ["config.yaml", "result.json"])
def test_a_sparse_file_is_refused_before_it_is_read(name: str, tmp_path: Path) -> None:
    """It takes no space on the disk, but 60 GB in memory."""
    (tmp_path / "result.json").write_text('{"stages": []}')
    with (tmp_path / name).open("wb") as file:
        file.truncate(60 * 10**9)
    tracemalloc.start()
    with pytest.raises(ChitaError, match=naming(name, "bytes")):
        read_folder(tmp_path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 3 * 10**8


@pytest.mark.skipif(os.name == "nt", reason="Windows has no named pipes in folders")
def test_pipes_in_a_run_folder_are_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "result.json").write_text('{"stages": []}')
    for name in ("config.yaml", "other.json", "masks.safetensors"):
        link = tmp_path / name
        link.symlink_to("pipe")
        with pytest.raises(ChitaError, match=naming(name)):
            render(page_data(read_folder(tmp_path)))
        link.unlink()
