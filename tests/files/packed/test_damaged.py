"""Damaged files are refused, or give the tensors that were written; never anything else."""

from hypothesis import given, settings
from hypothesis import strategies as st

from chita import ChitaError
from chita.files.packed.container import assemble, take_apart
from chita.files.packed.read import unpack
from chita.files.packed.write import pack
from tests.files.packed.states import same_bits, small_state

STATE = small_state()
CONTENT = pack(STATE)
HEADER = 8 + int.from_bytes(CONTENT[:8], "little")
PLACES = st.integers(0, len(CONTENT) - 1) | st.integers(0, HEADER - 1)


def refused_or_right(content: bytes) -> None:
    try:
        _, found = unpack(content)
    except ChitaError:
        return
    assert same_bits(found, STATE)


@settings(max_examples=400, deadline=None)
@given(PLACES, st.binary(min_size=1, max_size=8), st.integers(0, 40))
def test_bytes_replaced_lost_or_put_in(start: int, new: bytes, lost: int) -> None:
    refused_or_right(CONTENT[:start] + new + CONTENT[start + lost :])


@settings(max_examples=400, deadline=None)
@given(st.lists(st.tuples(PLACES, st.integers(1, 255)), min_size=1, max_size=3))
def test_bits_flipped(flips: list[tuple[int, int]]) -> None:
    damaged = bytearray(CONTENT)
    for place, bits in flips:
        damaged[place] ^= bits
    refused_or_right(bytes(damaged))


def test_every_truncation_is_refused() -> None:
    for length in range(len(CONTENT)):
        try:
            unpack(CONTENT[:length])
        except ChitaError:
            continue
        raise AssertionError(f"a file cut to {length} bytes was read")


@settings(max_examples=400, deadline=None)
@given(st.sampled_from(["supports", "values"]), st.data())
def test_a_part_with_a_new_digest_is_refused_or_fits_its_directory(
    part: str, data: st.DataObject
) -> None:
    parts = {name: bytearray(getattr(take_apart(CONTENT), name)) for name in (
        "directory", "supports", "values")}  # fmt: skip
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(parts[part]) - 1))
        parts[part][place] ^= data.draw(st.integers(1, 255))
    try:
        _, found = unpack(assemble(*map(bytes, parts.values())))
    except ChitaError:
        return
    assert {n: (t.dtype, t.shape) for n, t in found.items()} == {
        n: (t.dtype, t.shape) for n, t in STATE.items()
    }


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=300))
def test_any_bytes_are_refused(content: bytes) -> None:
    try:
        unpack(content)
    except ChitaError:
        return
    raise AssertionError("random bytes were read")
