"""JSON that is read piece by piece."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chita.errors import ChitaError
from chita.files.packed.json_scanner import LONGEST_STRING, JsonScanner
from tests.support.messages import naming


def scanner(text: str, piece: int = 3) -> JsonScanner:
    content = text.encode()
    pieces = (content[start : start + piece] for start in range(0, len(content), piece))
    return JsonScanner(pieces, "the text")


@given(
    st.lists(st.text(st.characters(exclude_categories=["Cs"]))),
    st.booleans(),
    st.integers(1, 9),
    st.sampled_from([None, 1, "\t\r\n "]),
)
def test_strings(strings: list[str], plain: bool, piece: int, space: int | str | None) -> None:
    scan = scanner(json.dumps(strings, ensure_ascii=plain, indent=space), piece)
    assert [scan.string() for _ in scan.items("[", "]")] == strings
    scan.expect("")


@given(st.dictionaries(st.text(max_size=5), st.integers(0, 2**63 - 1)), st.integers(1, 9))
def test_numbers_by_name(numbers: dict[str, int], piece: int) -> None:
    scan = scanner(json.dumps(numbers), piece)
    assert {scan.key(): scan.number() for _ in scan.items("{", "}")} == numbers
    scan.expect("")


@pytest.mark.parametrize(
    "text", ["-1", "1.0", "1e3", "01", "9" * 20, "", "true", '"1"', "[]", "NaN"]
)
def test_what_is_no_whole_number(text: str) -> None:
    with pytest.raises(ChitaError, match=naming("the text")):
        scan = scanner(text)
        scan.number()
        scan.expect("")


@pytest.mark.parametrize("text", ['"', '"\\', '"\\x"', '"\n"', '"a', "a", "", '"\\u12'])
def test_what_is_no_string(text: str) -> None:
    with pytest.raises(ChitaError, match=naming("the text")):
        scanner(text).string()


def test_text_that_is_not_utf8() -> None:
    with pytest.raises(ChitaError, match=naming("the text")):
        JsonScanner([b'"\xff"'], "the text").string()


def test_long_strings() -> None:
    for name in ("x" * LONGEST_STRING, "é" * LONGEST_STRING):
        assert scanner(json.dumps(name), 1000).string() == name
    with pytest.raises(ChitaError, match=naming("the text")):
        scanner('"' + "x" * 20 * LONGEST_STRING, 10_000).string()
