import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chita import ChitaError
from chita.files.packed.deltas import MAX_LOW_BITS, decode, encode
from tests.files.packed.slow_reader import positions as read_slowly

SIZE = 5000


@given(st.integers(0, SIZE), st.sets(st.integers(0, SIZE - 1), max_size=200))
def test_round_trip_against_a_loop_over_bits(size: int, chosen: set[int]) -> None:
    wanted = sorted(i for i in chosen if i < size)
    code = encode(np.array(wanted, dtype=np.int64), size)
    assert decode(memoryview(code), len(wanted), size).tolist() == wanted
    assert read_slowly("deltas", len(wanted), code, size) == wanted


@pytest.mark.parametrize("share", [0.1, 0.02, 0.005])
def test_a_random_set_takes_hardly_more_than_its_entropy(share: float) -> None:
    drawn = np.random.default_rng(0).random(400_000) < share
    code = encode(np.flatnonzero(drawn), len(drawn))
    entropy = -share * math.log2(share) - (1 - share) * math.log2(1 - share)
    assert 8 * len(code) < 1.03 * entropy * len(drawn)


@pytest.mark.parametrize("size", [1000, 100_000])
def test_no_code_is_much_shorter_than_what_it_stands_for(size: int) -> None:
    code = encode(np.empty(0, dtype=np.int64), size)
    assert 8 * (len(code) - 1) >= size >> MAX_LOW_BITS


@given(st.binary(max_size=40), st.integers(0, 100), st.integers(0, 10_000))
def test_any_bytes_are_refused_or_a_set(code: bytes, count: int, size: int) -> None:
    try:
        found = decode(memoryview(code), count, size).tolist()
    except ChitaError:
        return
    assert len(found) == count and found == sorted(set(found))
    assert not found or (found[0] >= 0 and found[-1] < size)


def test_what_does_not_add_up_is_refused() -> None:
    code = encode(np.array([3, 500]), 1000)
    for count, size in ((2, 999), (2, 10**15), (1, 1000), (10**15, 1000)):
        with pytest.raises(ChitaError, match="differences"):
            decode(memoryview(code), count, size)
    for damaged in (b"", code[:1], code[:-1], bytes([9]) + code[1:]):
        with pytest.raises(ChitaError, match="differences"):
            decode(memoryview(damaged), 2, 1000)
