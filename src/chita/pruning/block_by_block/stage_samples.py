"""The calibration samples of a stage, with the outputs of the last finished section."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from chita.model.forward import device_of
from chita.model.replay import Replay
from chita.model.samples.batch import Batch
from chita.pruning.block_by_block.stored_pieces import StoredPieces


class Piece(NamedTuple):
    """Some samples, with the inputs of the present section.

    Attributes:
        batch: the samples.
        before: the output of the last finished section with its pruned weights; None before the
            first section, and if it must be computed again.
        dense: the same with the weights from before the stage.
    """

    batch: Batch
    before: Any
    dense: Any


class StageSamples:
    """Pieces of samples, which every section reads.

    Args:
        pieces: the samples; they are read once.
        batches: where they are stored.
        states: where the outputs of the last finished section are stored; None to compute them
            again whenever they are needed.
        dense: where its outputs with the weights from before the stage are stored; None if nothing
            needs them, or to compute them again.
    """

    def __init__(
        self,
        pieces: Iterable[Batch],
        batches: StoredPieces,
        states: StoredPieces | None,
        dense: StoredPieces | None = None,
    ) -> None:
        self._batches, self._count = batches, 0
        self._states, self._dense = _Outputs(states), _Outputs(dense)
        for piece in pieces:
            batches.put(self._count, (piece.content, piece.size))
            self._count += 1

    @property
    def stored(self) -> bool:
        """Whether the outputs of sections are stored."""
        return self._states.pieces is not None

    def restart(self) -> None:
        """Start again with the first section."""
        self._states.finished = self._dense.finished = False

    def __iter__(self) -> Iterator[Piece]:
        """Yield each piece."""
        for number in range(self._count):
            yield Piece(self._batch(number), self._states.get(number), self._dense.get(number))

    def advance(self, replay: Replay, section: int) -> None:
        """Run a section with its pruned weights, and store its outputs."""
        self._run(replay, section, self._states)

    def advance_dense(self, replay: Replay, section: int) -> None:
        """Run a section with the weights from before the stage, and store its outputs."""
        self._run(replay, section, self._dense)

    def _run(self, replay: Replay, section: int, outputs: _Outputs) -> None:
        if outputs.pieces is None:
            return
        device = device_of(replay.model)
        for number in range(self._count):
            batch = self._batch(number).to(device)
            outputs.pieces.put(number, replay.run(section, batch, outputs.get(number)))
        outputs.finished = True

    def _batch(self, number: int) -> Batch:
        return Batch(*self._batches.get(number))


class _Outputs:
    """The outputs of the last finished section, for all pieces."""

    def __init__(self, pieces: StoredPieces | None) -> None:
        self.pieces, self.finished = pieces, False

    def get(self, number: int) -> Any:
        return self.pieces.get(number) if self.pieces is not None and self.finished else None
