import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chita import ChitaError
from chita.files.packed.bitmask import decode, encode, mask_bytes
from tests.support.messages import naming


@given(st.integers(0, 300).flatmap(lambda n: st.tuples(st.just(n), st.sets(st.integers(0, n)))))
def test_every_bit_is_in_its_place(case: tuple[int, set[int]]) -> None:
    size, chosen = case[0], sorted(i for i in case[1] if i < case[0])
    code = encode(np.array(chosen, dtype=np.int64), size)
    assert len(code) == mask_bytes(size)
    assert [i for i in range(size) if code[i // 8] >> i % 8 & 1] == chosen
    assert decode(memoryview(code), len(chosen), size).tolist() == chosen


@pytest.mark.parametrize(
    ("code", "count", "size"),
    [(b"\x01", 1, 9), (b"\x01\x00", 1, 8), (b"\x01", 2, 8), (b"\x10", 1, 4), (b"", 1, 0)],
)
def test_a_mask_that_does_not_agree_is_refused(code: bytes, count: int, size: int) -> None:
    with pytest.raises(ChitaError, match=naming("bit mask", size)):
        decode(memoryview(code), count, size)
