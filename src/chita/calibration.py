"""How the calibration samples are divided: the rows of A, and those held out for ridge="auto"."""

from __future__ import annotations

import math

from chita.batches import Batch, SampleStream
from chita.config import PruneConfig
from chita.errors import ChitaError

MOST_SAMPLES = 1000  # rows of A, unless asked for: the paper's n
HELD_OUT = 1000  # samples that ridge="auto" holds out at least, if there are so many to spare
HELD_OUT_PART = 4  # and one for so many samples in A: fewer would not tell one lambda from the next
HELD_OUT_SHARE = 0.2  # the most of the data that it takes


def divide_samples(stream: SampleStream, config: PruneConfig) -> tuple[int, list[Batch]]:
    """n, and the samples held out to choose the ridge by."""
    batch, wanted = config.batch, config.samples or MOST_SAMPLES
    spare = max(HELD_OUT, wanted * batch // HELD_OUT_PART) if config.ridge == "auto" else 0
    have = stream.count(wanted * batch + spare)
    needed = (config.samples or 1) * batch
    to_spare = max(math.ceil(have * HELD_OUT_SHARE), have - wanted * batch)
    held = min(spare, to_spare, have - needed)
    if held < min(spare, 1):
        what = f"samples={config.samples} rows" if config.samples else "one row"
        more = " and some to hold out for ridge='auto'" if spare else ""
        raise ChitaError(
            f"{what} of batch={batch} need {needed} samples{more}, but batches hold {have}; "
            "give more data, or ask for fewer samples or a smaller batch"
            + (", or give ridge a number" if spare else "")
        )
    rows = min(wanted, (have - held) // batch)
    return rows, stream.hold_out(held, 256) if held else []
