"""Replay: run the forward pass of a network section by section, from stored outputs of blocks.

A network that calls its blocks once each, in order, has a section for each of them, which ends when
the block returns, and one more section after the last block. The model itself runs every section:
the blocks before it return a stored output without any work. Masks, position embeddings and
everything else that a model passes to its blocks are therefore computed by the model, in any
architecture.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from torch import nn

from chita.model.fast_arithmetic import fast_arithmetic
from chita.model.forward import device_of, unwrapped
from chita.model.hooks import Args, Keywords, returning, watching
from chita.model.samples.batch import Batch


class StopPassError(Exception):
    """Ends a forward pass early; raised by hooks, and caught by `Replay.run`.

    Args:
        output: what `Replay.run` returns.
    """

    def __init__(self, output: Any = None) -> None:
        super().__init__("the forward pass is stopped")
        self.output = output


@dataclass(frozen=True)
class Replay:
    """The sections of a forward pass.

    Attributes:
        model: the model, in eval mode while sections run.
        blocks: modules that a forward pass calls once each, in this order; may be empty.
        fast: whether large float32 models run in fast arithmetic.
    """

    model: nn.Module
    blocks: tuple[nn.Module, ...] = ()
    fast: bool = False

    @property
    def sections(self) -> int:
        """The number of sections: one more than blocks."""
        return len(self.blocks) + 1

    def run(self, section: int, batch: Batch, before: Any = None) -> Any:
        """Run one section of the forward pass on a batch.

        Args:
            section: its number, from 0.
            batch: the samples, on the device of the model.
            before: the output of the block that ends the section before. None runs the earlier
                sections as well.

        Returns:
            The output of the block that ends the section, or of the model in the last section; or
            the output of a StopPassError that a hook raised before.
        """
        earlier = () if before is None else self.blocks[:section]
        ends = watching(self.blocks[section : section + 1], _stop)
        try:
            with self._arithmetic(), returning(earlier, before), ends:
                return batch.outputs(unwrapped(self.model))
        except StopPassError as stop:
            return stop.output

    def _arithmetic(self) -> AbstractContextManager[Any]:
        if not self.fast:
            return nullcontext()
        return fast_arithmetic(device_of(self.model), self.model.parameters())


def _stop(module: nn.Module, args: Args, keywords: Keywords, output: Any) -> None:
    raise StopPassError(output)
