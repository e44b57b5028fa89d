"""The network with the weights from before the stage, which runs beside the pruned one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor

from chita.curvature.block_moments import LayerInputLists, section_inputs
from chita.model.forward import device_of
from chita.model.samples.batch import Batch
from chita.model.sections import Sections
from chita.model.weights import Weight
from chita.pruning.block_by_block.stage_samples import StageSamples
from chita.pruning.block_by_block.stored_pieces import StoredPieces


class DenseRun:
    """The inputs of the layers of one section after the other, in the dense network.

    If they are stored, a section runs once, before it is pruned. Otherwise it runs again for each
    group of its layers, with copies of the weights of all sections so far.

    Args:
        sections: the sections of the network.
        states: where the outputs of the last section are stored; None to store nothing.
        inputs: where the inputs of the layers are stored.
    """

    def __init__(
        self, sections: Sections, states: StoredPieces | None, inputs: StoredPieces | None
    ) -> None:
        self._sections, self._states, self._inputs = sections, states, inputs
        self._section = 0
        self._copies: list[tuple[Weight, Tensor]] = []

    def begin(self, section: int, samples: StageSamples) -> None:
        """Go on to a section, whose weights are still those from before the stage."""
        if section == 0:
            self._copies = []
        self._section = section
        if self._states is None or self._inputs is None:
            weights = self._sections.weights(section)
            self._copies += [(weight, weight.parameter.detach().clone()) for weight in weights]
            return
        for number, batch in enumerate(samples.batches()):
            before = self._states.get(number) if section else None
            inputs, output = self._run(batch, before)
            self._inputs.put(number, inputs)
            self._states.put(number, output)

    def inputs(self, number: int, batch: Batch) -> LayerInputLists:
        """Return the inputs of the layers of the section, for a piece of the samples."""
        if self._inputs is not None:
            found: LayerInputLists = self._inputs.get(number)
            return found
        with self._dense():
            return self._run(batch, None)[0]

    def _run(self, batch: Batch, before: Any) -> tuple[LayerInputLists, Any]:
        replay = self._sections.replay
        layers = self._sections.layers(self._section)
        return section_inputs(
            replay, self._section, layers, batch.to(device_of(replay.model)), before
        )

    @contextmanager
    def _dense(self) -> Iterator[None]:
        """Let the model use the copies within the context."""
        present = [weight.parameter.data for weight, _ in self._copies]
        try:
            for weight, copy in self._copies:
                weight.parameter.data = copy
            yield
        finally:
            for (weight, _), data in zip(self._copies, present, strict=True):
                weight.parameter.data = data
