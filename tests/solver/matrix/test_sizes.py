"""Sizes in bytes, as they are written."""

import pytest

from chita.errors import ChitaError
from chita.solver.matrix.memory import format_bytes, parse_bytes
from tests.support.messages import naming


@pytest.mark.parametrize(
    ("given", "count"),
    [
        ("8GB", 8_000_000_000),
        ("512MB", 512_000_000),
        ("1.5GiB", 3 << 29),
        ("1.5 gib", 3 << 29),
        ("64kb", 64_000),
        ("2TB", 2 * 10**12),
        ("100", 100),
        ("100B", 100),
        (123, 123),
    ],
)
def test_sizes_are_understood(given: object, count: int) -> None:
    assert parse_bytes("memory", given) == count


@pytest.mark.parametrize("given", ["", "GB", "8 G B", "-1GB", "0", 0, -5, 1.5, True, "8XB", None])
def test_anything_else_is_an_error_with_the_name(given: object) -> None:
    with pytest.raises(ChitaError, match=naming("memory", "8GB", repr(given))):
        parse_bytes("memory", given)


@pytest.mark.parametrize(
    ("count", "text"),
    [(26_115_000_000, "26.1 GB"), (999, "999 B"), (1500, "1.5 KB"), (2e12, "2 TB")],
)
def test_sizes_are_written(count: float, text: str) -> None:
    assert format_bytes(count) == text
