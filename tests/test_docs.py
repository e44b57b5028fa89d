"""Run every snippet of the README and of the documentation.

The blocks of a page share one namespace and run in order in a temporary folder: Python code as it
is, and the `chita` commands of shell blocks in this process. Pages under `docs/howto` start with
the names that the first Python block of the quick start defines. A block that cannot run here has
the line `<!-- skip: REASON -->` directly before its fence. A Python block after the line
`<!-- file: NAME -->` is also written to that file, for the commands below it.
"""

from __future__ import annotations

import re
import runpy
import shlex
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

import chita
from chita import data, gradual, zoo
from chita.cli.app import app

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
QUICK_START = DOCS / "quickstart.md"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]
PYTHON = {"python", "py"}
SHELL = {"bash", "console", "sh", "shell"}
SETUP = {"git", "make", "pip"}  # programs that prepare a checkout and do not run in the tests

_FENCE = re.compile(r"^(?P<indent> *)```(?P<language>[\w-]*).*$")
_FILE = re.compile(r"^\s*<!--\s*file:\s*(?P<name>[\w.]+)\s*-->\s*$")
_SKIP = re.compile(r"^\s*<!--\s*skip\b:?(?P<reason>.*?)-->\s*$")


@dataclass(frozen=True)
class Block:
    """A fenced block of a page.

    Attributes:
        page: The file.
        line: The line number of the first line inside the fence, from 1.
        language: The word after the fence.
        text: The content, without the indentation of the fence.
        skip: The reason not to run it; None without a mark.
        file: The file to write it to; None without a mark.
    """

    page: Path
    line: int
    language: str
    text: str
    skip: str | None
    file: str | None

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks_of(page: Path) -> Iterator[Block]:
    """Yield the fenced blocks of a page in order."""
    lines = page.read_text(encoding="utf-8").splitlines()
    at = 0
    while at < len(lines):
        fence = _FENCE.match(lines[at])
        if fence is None:
            at += 1
            continue
        end = next(i for i in range(at + 1, len(lines)) if lines[i].strip() == "```")
        mark = _SKIP.match(lines[at - 1]) if at else None
        file = _FILE.match(lines[at - 1]) if at else None
        yield Block(
            page,
            line=at + 2,
            language=fence["language"],
            text=textwrap.dedent("\n".join(lines[at + 1 : end])),
            skip=None if mark is None else mark["reason"].strip(),
            file=None if file is None else file["name"],
        )
        at = end + 1


def commands_of(block: Block) -> Iterator[list[str]]:
    """Yield the commands of a shell block, split into words.

    In a `console` block the lines after a `$` are commands and the others are output.
    """
    text = block.text.replace("\\\n", " ")
    for line in text.splitlines():
        if block.language == "console":
            if not line.startswith("$ "):
                continue
            line = line.removeprefix("$ ")
        if words := shlex.split(line, comments=True):
            yield words


def run_python(block: Block, namespace: dict[str, Any]) -> None:
    code = "\n" * (block.line - 1) + block.text  # a traceback shows the line of the page
    if block.file is not None:
        Path(block.file).write_text(block.text, encoding="utf-8")
    exec(compile(code, str(block.page), "exec"), namespace)


def run_shell(block: Block) -> None:
    for words in commands_of(block):
        program, *arguments = words
        if program in SETUP:
            continue
        assert program == "chita", f"{block}: cannot run {program}; mark the block to skip it"
        result = CliRunner().invoke(app, arguments, catch_exceptions=False)
        assert result.exit_code == 0, f"{block}: {shlex.join(words)}\n{result.output}"


BLOCKS = [block for page in PAGES for block in blocks_of(page) if block.language in PYTHON | SHELL]


@pytest.mark.slow
@pytest.mark.parametrize(
    "page",
    dict.fromkeys(block.page for block in BLOCKS),
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_snippets_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))  # references make the folder importable
    namespace: dict[str, Any] = {"__name__": "__main__"}
    with torch.random.fork_rng():
        if page.parent == DOCS / "howto":
            start = next(b for b in blocks_of(QUICK_START) if b.language in PYTHON)
            run_python(start, namespace)
        for block in BLOCKS:
            if block.page != page or block.skip is not None:
                continue
            if block.language in PYTHON:
                run_python(block, namespace)
            else:
                run_shell(block)


@pytest.mark.parametrize("block", [b for b in BLOCKS if b.skip is not None], ids=str)
def test_skip_marks_have_a_reason(block: Block) -> None:
    assert len(block.skip or "") > 3, f"{block}: write <!-- skip: REASON -->"


def test_every_page_is_in_the_navigation() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    pages = [page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")]
    assert [page for page in pages if page not in navigation] == []


@pytest.mark.slow
def test_cli_reference_has_every_command() -> None:
    text = runpy.run_path(str(ROOT / "tools/cli_reference.py"))["render"]()
    names = [command.name for command in app.registered_commands]
    assert [name for name in names if f"## `chita {name}`" not in text] == []
    assert "`--sparsity" in text


def test_map_names_files_that_exist() -> None:
    text = (DOCS / "explanation/map.md").read_text(encoding="utf-8")
    names = re.findall(r"`((?!src/)[a-z_]+/[a-z_0-9/]*(?:\.py)?)`", text)
    assert len(names) > 50
    assert [name for name in names if not (ROOT / "src/chita" / name).exists()] == []


def test_commands_of_the_benchmarks_exist() -> None:
    named = {name for page in PAGES for name in re.findall(r"benchmarks/\w+\.py", page.read_text())}
    assert named
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []


@pytest.mark.parametrize(
    ("module", "page"), [(chita, "api"), (gradual, "gradual"), (zoo, "zoo"), (data, "data")]
)
def test_reference_has_every_public_name(module: ModuleType, page: str) -> None:
    text = (DOCS / f"reference/{page}.md").read_text(encoding="utf-8")
    shown = {name.rsplit(".", 1)[1] for name in re.findall(r"^::: (\S+)$", text, re.MULTILINE)}
    public = {name for name in module.__all__ if callable(getattr(module, name))}
    assert public - shown == set()
