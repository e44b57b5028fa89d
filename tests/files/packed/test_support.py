import numpy as np
import pytest

from chita.files.packed import bitmask, deltas
from chita.files.packed.support import decode, encode


@pytest.mark.parametrize("share", [0.0, 0.001, 0.02, 0.1, 0.2, 0.25, 0.3, 0.45, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("clustered", [False, True])
def test_the_shorter_code_is_taken(share: float, clustered: bool) -> None:
    drawn = np.random.default_rng(0).random(3000) < share
    positions = np.flatnonzero(np.sort(drawn) if clustered else drawn)
    code, content = encode(positions, len(drawn))
    lengths = [len(form.encode(positions, len(drawn))) for form in (bitmask, deltas)]
    assert code.length == len(content) == min(lengths)
    assert code.form == ("deltas" if lengths[1] < lengths[0] else "mask")
    assert np.array_equal(decode(code, memoryview(content), len(drawn)), positions)
