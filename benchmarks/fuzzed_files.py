"""Damaged packed files and run folders, for `faults.py`."""

from __future__ import annotations

import json
import random
import shutil
import time
import tracemalloc
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from chita.errors import ChitaError
from chita.files.checkpoint import read_checkpoint
from chita.files.packed.container import assemble, take_apart
from chita.files.packed.planes import PATTERNS, deflate, inflate
from chita.files.packed.read import unpack
from chita.files.packed.write import pack
from chita.files.run_folder import config_beside, model_file
from chita.gradual.epoch_file import EpochFile
from chita.pruning.resume import StageFile
from chita.report.page.folder import read_folder

SLOW = 2.0  # seconds
MOST = 2  # times the size of a content in memory
SPARE = 2**18  # bytes of Python's own objects
DAMAGES = ("flip", "cut", "insert", "delete", "zero", "repeat")
ODD = [-1, 0, 1, 2**31, 10**12, 2**63, 1e300, "", "F32", None, True, [], {}, [[]] * 50]

State = dict[str, Tensor]


@dataclass
class Outcomes:
    """The outcomes of a part: their counts, and descriptions of those that are wrong."""

    title: str
    counts: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    slowest: float = 0.0
    largest: float = 0.0

    def add(
        self, name: str, size: int, read: Callable[[], Any], judge: Callable[[Any], str]
    ) -> None:
        """Read a damaged content.

        Args:
            name: describes it.
            size: the bytes of its content when it is read.
            read: reads it; raises a ChitaError if it is refused.
            judge: returns what is wrong with the result, if anything is.
        """
        tracemalloc.reset_peak()
        before, began = tracemalloc.get_traced_memory()[0], time.perf_counter()
        found: Any = None
        fault, outcome = "", "refused"
        try:
            found, outcome = read(), "right"
        except ChitaError:
            pass
        except Exception as error:
            fault, outcome = repr(error), "other error"
        seconds = time.perf_counter() - began
        memory = tracemalloc.get_traced_memory()[1] - before
        if outcome == "right" and (fault := judge(found)):
            outcome = "accepted wrongly"
        elif isinstance(found, dict) and any(isinstance(p, ChitaError) for p in found.values()):
            outcome = "refused"
        self.slowest, self.largest = max(self.slowest, seconds), max(self.largest, memory / size)
        if seconds > SLOW:
            fault = fault or f"it took {seconds:.1f} s"
        if memory > MOST * size + SPARE:
            fault = fault or f"it took {memory} bytes, {memory / size:.1f} times its size"
        self.counts[outcome] += 1
        if fault:
            self.wrong.append(f"{self.title}, {name}: {fault}")

    def show(self) -> list[str]:
        """Print a line of a table, and return what went wrong."""
        found = ", ".join(f"{count} {outcome}" for outcome, count in self.counts.most_common())
        print(
            f"{self.title:14s} {sum(self.counts.values()):6d} files: {found}; slowest "
            f"{self.slowest:.2f} s, at most {self.largest:.1f} times the size; "
            f"{len(self.wrong)} wrong",
            flush=True,
        )
        return self.wrong[:20]


def damaged(content: bytes, chance: random.Random, damage: str) -> bytes:
    """Return other bytes."""
    place = chance.randrange(len(content) + 1)
    length = min(chance.choice((1, 1, 2, 8, 100)), len(content) - place)
    if damage == "flip":
        changed = bytearray(content)
        for _ in range(chance.choice((1, 1, 2, 5))):
            changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
        return bytes(changed)
    middle = {
        "cut": b"",
        "insert": chance.randbytes(length or 1) + content[place : place + length],
        "delete": b"",
        "zero": bytes(length),
        "repeat": content[place : place + length] * 2,
    }[damage]
    return content[:place] + middle + (b"" if damage == "cut" else content[place + length :])


def fuzz_packed(count: int, seed: int) -> list[str]:
    """Read damaged packed files; those with a right digest must be consistent in themselves."""
    state = sparse_state()
    content, outcomes = pack(state), Outcomes("packed files")
    size = sum(tensor.nbytes for tensor in state.values())
    tracemalloc.start()
    for number in range(count):
        chance = random.Random(f"packed {seed} {number}")
        damage = "forge" if number % 2 else chance.choice(DAMAGES)
        changed = forge(content, chance) if number % 2 else damaged(content, chance, damage)
        outcomes.add(
            f"file {number} of seed {seed}, {damage}",
            max(size, len(changed)),
            partial(unpack, changed),
            consistent if number % 2 else partial(unchanged, state),
        )
    tracemalloc.stop()
    return outcomes.show()


def unchanged(state: State, found: tuple[Any, State]) -> str:
    """Return what is wrong with a file that is read: it must give what was written."""
    return "" if same_state(found[1], state) else "it gives other tensors"


def sparse_state() -> State:
    """Return tensors of several types and sparsities, with -0.0 and tied ones."""
    generator = torch.Generator().manual_seed(0)

    def sparse(*shape: int, density: float) -> Tensor:
        numbers = torch.randn(shape, generator=generator)
        return numbers * (torch.rand(shape, generator=generator) < density)

    state = {
        "rare": sparse(200, 300, density=0.03),
        "half": sparse(100, 100, density=0.5).half(),
        "dense": torch.randn(50, 60, generator=generator),
        "steps": torch.arange(12),
        "flags": torch.tensor([True, False, True]),
        "signed": sparse(4000, density=0.1).abs().neg(),
    }
    return state | {"tied": state["rare"]}


def forge(content: bytes, chance: random.Random) -> bytes:
    """Return a file with a changed part and a right digest."""
    parts = take_apart(content)
    found = {name: bytes(getattr(parts, name)) for name in ("directory", "supports", "values")}
    name = chance.choice(("directory", "directory", "supports", "values"))
    if chance.random() < 0.01:  # parsed lists and dicts take many times the memory of their text
        many = chance.choice(("[]", "{}", "[[]]", '""', "0")) + ","
        text = '{"tensors": [' + many * chance.randrange(1, 10**6) + "0]}"
        found["directory"] = deflate(text.encode(), PATTERNS)
    elif name == "directory":
        directory = json.loads(inflate(parts.directory, 10**7))
        change_json(directory, chance)
        found[name] = deflate(json.dumps(directory).encode(), PATTERNS)
    else:
        found[name] = damaged(found[name], chance, chance.choice(DAMAGES))
    return assemble(*found.values())


def change_json(nest: Any, chance: random.Random) -> None:
    """Change a value somewhere in a nest of lists and dicts."""
    keys = list(nest) if isinstance(nest, dict) else list(range(len(nest)))
    key = chance.choice(keys)
    if isinstance(nest[key], (list, dict)) and nest[key] and chance.random() < 0.8:
        change_json(nest[key], chance)
    elif isinstance(nest[key], int) and chance.random() < 0.5:
        nest[key] += chance.choice((-8, -1, 1, 8))
    elif isinstance(nest, list) and chance.random() < 0.3:
        nest.extend(nest[key : key + 1] * chance.choice((1, 1000)))
    elif chance.random() < 0.3:
        del nest[key]
    else:
        nest[key] = chance.choice(ODD)


def consistent(found: tuple[Any, State]) -> str:
    """Return what is wrong with a forged file that is read: it must describe its tensors."""
    again = unpack(pack(found[1]))[1]
    return "" if same_state(found[1], again) else "it gives other tensors when packed again"


def same_state(one: State, other: State) -> bool:
    """Return whether two state dicts have the same names, types, shapes and bits."""
    return one.keys() == other.keys() and all(
        one[name].dtype == other[name].dtype
        and one[name].shape == other[name].shape
        and one[name].numpy().tobytes() == other[name].numpy().tobytes()
        for name in one
    )


def fuzz_folders(folders: list[Path], count: int, seed: int, scratch: Path) -> list[str]:
    """Read run folders in which one file is damaged, missing, or of another run."""
    outcomes, out = Outcomes("run folders"), scratch / "damaged"
    contents = [content_of(folder) for folder in folders]
    tracemalloc.start()
    for number in range(count):
        chance = random.Random(f"folders {seed} {number}")
        which = number % len(folders)
        shutil.rmtree(out, ignore_errors=True)
        shutil.copytree(folders[which], out)
        path = chance.choice(sorted(out.iterdir()))
        damage = chance.choice((*DAMAGES, "missing", "other run", "empty"))
        whole = path.read_bytes()
        if damage == "missing":
            path.unlink()
        elif damage == "other run":
            swapped = folders[1 - which] / path.name
            path.write_bytes(swapped.read_bytes() if swapped.exists() else b"{}")
        else:
            path.write_bytes(b"" if damage == "empty" else damaged(whole, chance, damage))
        size = sum(each.stat().st_size for each in folders[which].iterdir())
        outcomes.add(
            f"folder {number} of seed {seed}, {damage} {path.name}",
            size,
            partial(content_of, out),
            partial(compare, contents[which]),
        )
    tracemalloc.stop()
    return outcomes.show()


def content_of(folder: Path) -> dict[str, Any]:
    """Return what the commands read from a folder; an error stands for a part that is refused."""
    readers: dict[str, Callable[[], Any]] = {
        "model": lambda: read_checkpoint(model_file(folder)),
        "config": lambda: config_beside(folder / "model.safetensors"),
        "report": lambda: vars(read_folder(folder)),
        "stages": lambda: StageFile._find(folder),
        "epochs": lambda: EpochFile._find(folder),
    }
    found: dict[str, Any] = {}
    for name, read in readers.items():
        try:
            found[name] = read()
        except ChitaError as error:
            found[name] = error
    return found


def compare(wanted: dict[str, Any], found: dict[str, Any]) -> str:
    """Return the parts that were read and differ; those that were refused are right."""
    wrong = [
        name
        for name, part in found.items()
        if not isinstance(part, ChitaError) and part is not None and not equal(part, wanted[name])
    ]
    return f"other {', '.join(wrong)}" if wrong else ""


def equal(one: Any, other: Any) -> bool:
    """Return whether two nests are equal, tensors bit for bit; paths may differ."""
    if isinstance(one, Tensor):
        return isinstance(other, Tensor) and torch.equal(one, other)
    if isinstance(one, dict):
        return isinstance(other, dict) and all(
            key in other and equal(value, other[key]) for key, value in one.items()
        )
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(equal, one, other))
    if isinstance(one, Path):
        return isinstance(other, Path) and (one.name == other.name or one.is_dir())
    if hasattr(one, "__dict__"):
        return type(one) is type(other) and equal(vars(one), vars(other))
    return bool(one == other) or one != one
