import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chita import ChitaError
from chita.files.packed.planes import FREQUENCIES, PATTERNS, RUNS, deflate, inflate
from tests.support.messages import naming


@given(st.binary(max_size=500), st.sampled_from([PATTERNS, RUNS, FREQUENCIES]))
def test_round_trip(content: bytes, strategy: int) -> None:
    stream = deflate(content, strategy)
    assert inflate(memoryview(stream), len(content)) == content
    if content:
        with pytest.raises(ChitaError, match=naming(len(content) - 1)):
            inflate(memoryview(stream), len(content) - 1)


def test_a_bomb_is_not_set_off() -> None:
    with pytest.raises(ChitaError, match=naming(1000)):
        inflate(memoryview(deflate(bytes(10**8), PATTERNS)), 1000)


@pytest.mark.parametrize("change", [lambda s: s[:-1], lambda s: s + b"x", lambda s: b"\xff" + s])
def test_a_damaged_stream_is_refused(change) -> None:  # type: ignore[no-untyped-def]
    stream = deflate(b"some text, some text", PATTERNS)
    with pytest.raises(ChitaError, match=re.compile("deflate")):
        inflate(memoryview(change(stream)), 100)
