"""A in a file: what lies on disk, and what is left of it."""

import gc
import re
import tempfile
from pathlib import Path

import pytest
import torch

from chita.errors import ChitaError
from chita.solver.matrix import on_disk as file_module
from chita.solver.matrix.in_memory import HeldMatrix
from chita.solver.matrix.on_disk import FileMatrix, FileTarget, SlabFile
from tests.solver.matrix.matrices import P, demand_of, dense, filled, picked, stored
from tests.support.messages import naming


def open_files() -> list[str]:
    """Where the open files of this process lead."""
    links = Path("/proc/self/fd")
    if not links.exists():
        pytest.skip("the system does not list the open files of a process")
    return [str(link.readlink()) for link in links.iterdir() if link.is_symlink()]


def test_gathered_columns_are_held_if_two_copies_fit() -> None:
    A = dense()
    size = 100 * len(A) * 8
    for room, kind in ((2 * size, HeldMatrix), (2 * size - 1, FileMatrix)):
        matrix = filled(A, FileTarget(demand_of(A), dtype=A.dtype, slab=5, room=room))
        assert type(matrix.columns(picked(100))) is kind


@pytest.mark.parametrize("slab", [1, 4, 9, 23, 1000])
def test_slabs_of_any_height(slab: int) -> None:
    A = dense()
    matrix = filled(A, FileTarget(demand_of(A), dtype=A.dtype, slab=slab, room=0))
    assert torch.equal(matrix.whole().t(), A)


def test_pieces_are_bounded_by_their_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    A = dense()
    monkeypatch.setattr(file_module, "PIECE_BYTES", 50 * len(A) * 8)
    matrix = stored(A, "file, and gathered columns held")
    assert matrix.piece == 50
    assert max(len(chunk) for chunk in matrix.chunks(torch.arange(P))) == 50
    assert torch.equal(matrix.columns(picked(700)).whole(), A.t()[picked(700)])


def test_columns_far_apart_are_read_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_module, "GAP_BYTES", 1000)
    matrix = stored(dense(), "file, and gathered columns held")
    read = []
    plain = SlabFile.read

    def noted(self: SlabFile, start: int, stop: int, columns: torch.Tensor) -> None:
        read.append(stop - start)
        plain(self, start, stop, columns)

    monkeypatch.setattr(SlabFile, "read", noted)
    index = torch.tensor([3, 5, 6, 1000, 3000, 3001])
    (chunk,) = matrix.chunks(index)
    assert torch.equal(chunk, dense().t()[index])
    assert read == [4, 1, 2]


def test_the_file_is_in_tmpdir_and_gone_with_the_matrix(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    matrix = stored(dense(), "file, and gathered columns too")
    gathered = matrix.columns(picked(50))
    assert sum(str(tmp_path) in name for name in open_files()) == 2
    assert list(tmp_path.iterdir()) == []  # without a name from the start
    del matrix, gathered
    gc.collect()
    assert not any(str(tmp_path) in name for name in open_files())


def test_the_file_is_gone_after_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def interrupted() -> None:
        A = dense()
        target = FileTarget(demand_of(A), dtype=A.dtype, slab=2, room=0)
        target.begin(2)
        target.end()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    gc.collect()
    assert not any(str(tmp_path) in name for name in open_files())


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_a_full_disk_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    with Path("/dev/full").open("r+b", buffering=0) as full:
        monkeypatch.setattr(file_module, "TemporaryFile", lambda buffering: full)
        file = SlabFile(torch.float32)
        with pytest.raises(ChitaError, match=naming("A", re.compile("[Nn]o space left"), "TMPDIR")):
            file.append(3, [torch.zeros(5, 3)])
