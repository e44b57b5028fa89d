import math
import os
import struct
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from chita import ChitaError
from chita.data.idx import decode_idx, encode_idx, read_idx
from tests.support.messages import naming


@given(st.lists(st.integers(0, 5), min_size=1, max_size=4), st.integers(0, 1000))
def test_round_trip(shape: list[int], seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    values = torch.randint(256, shape, dtype=torch.uint8, generator=generator)
    decoded = decode_idx(encode_idx(values), "memory")
    assert decoded.shape == values.shape
    assert torch.equal(decoded, values)


def test_layout_is_the_official_one(tmp_path: Path) -> None:
    values = torch.arange(12, dtype=torch.uint8).reshape(2, 2, 3)
    (tmp_path / "images").write_bytes(encode_idx(values))
    # 2051 is the magic number of MNIST's image files.
    assert (tmp_path / "images").read_bytes() == struct.pack(">4I", 2051, 2, 2, 3) + bytes(
        range(12)
    )
    assert torch.equal(read_idx(tmp_path / "images", (2, 3)), values)


def test_every_truncation_is_noticed() -> None:
    content = encode_idx(torch.arange(6, dtype=torch.uint8).reshape(2, 3))
    for length in range(len(content)):
        with pytest.raises(ChitaError, match="t10k"):
            decode_idx(content[:length], "t10k")
    with pytest.raises(ChitaError, match=naming("t10k", "(2, 3)", 18, 19)):
        decode_idx(content + b"\0", "t10k")


def test_other_types_and_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ChitaError, match=naming("labels.gz", "1f 8b 08 00")):
        decode_idx(b"\x1f\x8b\x08\x00rest", "labels.gz")
    with pytest.raises(ChitaError, match=naming("uint8", torch.float32, "(3,)")):
        encode_idx(torch.zeros(3))
    with pytest.raises(ChitaError, match="nowhere"):
        read_idx(tmp_path / "nowhere", ())


def sparse(path: Path, header: bytes, size: int) -> Path:
    """A file that takes no space on the disk, and `size` bytes when it is read."""
    with path.open("wb") as file:
        file.write(header)
        file.truncate(size)
    return path


def test_many_axes_are_refused(tmp_path: Path) -> None:
    content = bytes((0, 0, 8, 255)) + struct.pack(">255I", *[1] * 255) + b"\0"
    with pytest.raises(ChitaError, match=naming("images", 255)):
        decode_idx(content, "images")
    (tmp_path / "images").write_bytes(content)
    with pytest.raises(ChitaError, match=naming("images", 255)):
        read_idx(tmp_path / "images", (28, 28))


@pytest.mark.parametrize(
    ("shape", "item"),
    [((76_000_000, 28, 28), (28, 28)), ((60_000, 1_000_000), ()), ((2**32 - 1,), ())],
)
def test_a_sparse_file_is_refused_before_it_is_read(
    shape: tuple[int, ...], item: tuple[int, ...], tmp_path: Path
) -> None:
    header = bytes((0, 0, 8, len(shape))) + struct.pack(f">{len(shape)}I", *shape)
    path = sparse(tmp_path / "images", header, len(header) + math.prod(shape))
    with pytest.raises(ChitaError, match=naming("images", str(shape))):
        read_idx(path, item)


def test_a_file_longer_than_its_header_says_is_not_read(tmp_path: Path) -> None:
    path = sparse(tmp_path / "labels", struct.pack(">2I", 2049, 3), 60 * 10**9)
    with pytest.raises(ChitaError, match=naming("labels", "(3,)", 60 * 10**9)):
        read_idx(path, ())


@pytest.mark.skipif(os.name == "nt", reason="Windows has no named pipes in folders")
def test_a_pipe_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "labels").symlink_to("pipe")
    with pytest.raises(ChitaError, match=naming("labels")):
        read_idx(tmp_path / "labels", ())
