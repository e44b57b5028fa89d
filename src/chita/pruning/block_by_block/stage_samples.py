"""The calibration samples of a stage, with the outputs of the last finished section."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from chita.model.forward import device_of
from chita.model.replay import Replay
from chita.model.samples.batch import Batch
from chita.pruning.block_by_block.stored_pieces import StoredPieces


class StageSamples:
    """Pieces of samples, which every section reads.

    Args:
        pieces: the samples; they are read once.
        batches: where they are stored.
        states: where the outputs of the last finished section are stored; None to compute them
            again whenever they are needed.
    """

    def __init__(
        self, pieces: Iterable[Batch], batches: StoredPieces, states: StoredPieces | None
    ) -> None:
        self._batches, self._states, self._count = batches, states, 0
        for piece in pieces:
            batches.put(self._count, (piece.content, piece.size))
            self._count += 1
        self._finished = False  # whether there are outputs of a section

    def restart(self) -> None:
        """Start again with the first section."""
        self._finished = False

    def __iter__(self) -> Iterator[tuple[Batch, Any]]:
        """Yield each piece with the output of the last finished section.

        The output is None before the first section, and if it must be computed again.
        """
        for number in range(self._count):
            yield self._batch(number), self._before(number)

    def batches(self) -> Iterator[Batch]:
        """Yield the samples of each piece."""
        return (self._batch(number) for number in range(self._count))

    def advance(self, replay: Replay, section: int) -> None:
        """Run a section with the current weights, and store its outputs."""
        if self._states is None:
            return
        device = device_of(replay.model)
        for number in range(self._count):
            batch = self._batch(number).to(device)
            output = replay.run(section, batch, self._before(number))
            self._states.put(number, output)
        self._finished = True

    def _batch(self, number: int) -> Batch:
        return Batch(*self._batches.get(number))

    def _before(self, number: int) -> Any:
        return self._states.get(number) if self._states is not None and self._finished else None
