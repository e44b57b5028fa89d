import pytest

from chita import ChitaError
from chita.files.packed.container import parse
from tests.support.messages import naming


def test_json() -> None:
    assert parse(b'{"a": [1, {"b": 2}]}', "it") == {"a": [1, {"b": 2}]}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b'{"a": 1, "a": 1}',
        b'[{"b": {"a": 1, "a": 2}}]',
        b"\xff\xfe{",
        b"[" * 100_000,
        b"9" * 100_000,
    ],
)
def test_anything_else_is_refused(content: bytes) -> None:
    with pytest.raises(ChitaError, match=naming("its header", "JSON")):
        parse(content, "its header")
