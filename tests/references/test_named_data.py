"""Errors of a user's data, wherever they are read, name the reference."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from chita.errors import ChitaError
from chita.model.samples.keys import is_indexed, known_size, order_is_fixed, repeats_samples
from chita.model.samples.stream import SampleStream
from chita.references.samples import load_samples
from tests.support.command import invoke
from tests.support.messages import naming

DATA = """
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

broken = False

def batches():
    yield torch.zeros(3, 784), torch.zeros(3, dtype=torch.long)
    if broken:
        raise KeyError("a missing column")

class Rows(Dataset):
    def __len__(self):
        return 90

    def __getitem__(self, i):
        if i == 7 and broken:
            raise KeyError("a missing column")
        return torch.full((784,), i / 90), i % 10

class Stream(IterableDataset):
    def __iter__(self):
        rows = Rows()
        return (rows[i] for i in range(len(rows)))

class Plain:
    def __iter__(self):
        return batches()

def together(rows):
    return torch.utils.data.default_collate(rows)

rows, stream, plain = Rows(), Stream(), Plain()
loader = DataLoader(rows, 8, collate_fn=together)
working = DataLoader(rows, 8, num_workers=1)
streamed = DataLoader(stream, 8)

def loaded():
    return DataLoader(TensorDataset(torch.zeros(9, 784), torch.zeros(9, dtype=torch.long)), 4)
"""
FORMS = ("batches", "rows", "stream", "plain", "loader", "working", "streamed", "Plain", "Rows")


@pytest.fixture(autouse=True)
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "own_data.py").write_text(DATA)
    load_samples("own_data.py:rows")
    yield sys.modules["own_data"]
    sys.modules.pop("own_data", None)


@pytest.mark.parametrize("name", FORMS)
def test_an_error_of_the_data_names_them(name: str, own: Any) -> None:
    stream = SampleStream(load_samples(f"own_data.py:{name}"), seed=0)
    assert stream.count(200) in (3, 90)
    own.broken = True
    parts = [] if name.lower() == "rows" else [f"own_data.py:{name}"]  # it names the sample
    with pytest.raises(ChitaError, match=naming("KeyError", "a missing column", *parts)):
        list(SampleStream(load_samples(f"own_data.py:{name}"), seed=0).one_pass())


def test_a_loader_is_read_as_before(own: Any) -> None:
    for loader in (own.loader, own.working, own.loaded()):
        name = "loaded" if isinstance(loader.dataset, TensorDataset) else "loader"
        named = load_samples(f"own_data.py:{name}")
        assert isinstance(named, DataLoader) and is_indexed(named) and len(named) == len(loader)
        parse = SampleStream(named).parse
        assert known_size(named, parse) == known_size(loader, parse)
        assert repeats_samples(named, parse) and not order_is_fixed(named)
        for one, other in zip(named, loader, strict=True):
            assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))
    assert type(own.loader.dataset).__name__ == "Rows"  # it has not changed


@pytest.mark.parametrize("name", ["batches", "loader"])
def test_the_commands_report_it_in_one_line(
    name: str, own: Any, caplog: pytest.LogCaptureFixture
) -> None:
    own.broken = True
    with pytest.raises(
        ChitaError, match=naming(f"own_data.py:{name}", "a missing column")
    ) as found:
        invoke("--verbose", "prune", "mlpnet", "--data", f"own_data.py:{name}",
               "--method", "chita-bso", "--samples", "8", "--batch", "1")  # fmt: skip
    assert "\n" not in str(found.value)
    caplog.set_level("INFO")
    with pytest.raises(ChitaError):
        list(SampleStream(load_samples(f"own_data.py:{name}")).one_pass())
    assert any(record.exc_info for record in caplog.records)  # the traceback, for --verbose
