"""The training step of recovery: the divergence from the dense network, or the user's loss.

A single process updates the parameters in the same step, so that a CUDA graph contains all of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor, nn

from chita.errors import ChitaError
from chita.model.fast_arithmetic import fast_arithmetic, fast_format
from chita.model.forward import device_of
from chita.model.samples.batch import Batch, map_tensors
from chita.model.training_step import TrainingStep
from chita.pruning.recovery.updates import RelativeAdam

Objective = Callable[[nn.Module, Batch], Tensor]  # the loss of a batch, a scalar


class RecoveryStep(TrainingStep):
    """The forward and backward pass of a batch of calibration samples.

    Float32 models run in bfloat16 where torch considers that safe (autocast), if the device has
    instructions for it.

    Args:
        model: the pruned model.
        parameters: the parameters that are trained.
        objective: the loss of a batch.
        example: a batch in the form of all later ones.
        updates: updates the parameters after each backward pass; None if the caller does.
    """

    def __init__(
        self,
        model: nn.Module,
        parameters: Sequence[nn.Parameter],
        objective: Objective,
        example: Batch,
        updates: RelativeAdam | None = None,
    ) -> None:
        super().__init__(model, parameters)
        self._updates = updates
        self._objective, self._form = objective, example.content
        self._place = device_of(model)

    def forward_backward(self, *batch: Tensor) -> Tensor:
        """Accumulate gradients, update the parameters, and return the loss.

        Args:
            batch: the tensors of a batch, in the order of `tensors_of`.
        """
        tensors = iter(batch)
        content = map_tensors(lambda _: fast_format(next(tensors)), self._form)
        with fast_arithmetic(self._place, self.parameters):
            loss = self._objective(self.model, Batch(content, len(batch[0])))
        if not loss.requires_grad:
            raise ChitaError(
                "the loss does not depend on the parameters that are trained: the loss function "
                "must use the outputs of the model, and the model must not run under torch.no_grad"
            )
        loss.backward()  # type: ignore[no-untyped-call]
        if self._updates is not None:
            self._updates.apply()
        return loss.detach()
