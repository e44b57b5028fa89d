import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chita import ChitaError
from chita.files.packed.planes import RUNS, decode, deflate, encode


@given(st.binary(max_size=600), st.sampled_from([1, 2, 4, 8]))
def test_round_trip(content: bytes, width: int) -> None:
    values = np.frombuffer(content[: len(content) // width * width], np.uint8).reshape(-1, width)
    planes = encode(values)
    assert all(len(plane) <= len(values) for plane in planes)
    assert np.array_equal(decode([memoryview(p) for p in planes], len(values)), values)


def test_the_highest_byte_of_weights_shrinks_and_the_lowest_does_not() -> None:
    weights = np.random.default_rng(0).standard_normal(20_000).astype("<f4")
    planes = encode(weights.view(np.uint8).reshape(-1, 4))
    assert len(planes[0]) < 0.4 * len(weights)
    assert planes[3] == weights.tobytes()[::4]


def test_half_precision_stored_as_float32_takes_half() -> None:
    weights = np.random.default_rng(0).standard_normal(20_000).astype("<f4")
    rounded = weights.view("<u4") & np.uint32(0xFFFF0000)
    assert sum(map(len, encode(rounded.view(np.uint8).reshape(-1, 4)))) < 1.4 * len(weights)


@pytest.mark.parametrize("content", [b"", b"x", b"\x00" * 50, b"ab" * 200])
def test_a_plane_of_another_length_is_refused(content: bytes) -> None:
    planes = [memoryview(deflate(content, RUNS))]
    for count in (100, 10**15):
        with pytest.raises(ChitaError):
            decode(planes, count)
