"""The training step of `train_sparse`: an objective of normalised images, with a sparsifier."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.func import functional_call

from chita.data.dataset import Images
from chita.gradual.objective import Objective
from chita.gradual.sparsifier import Sparsifier
from chita.model.fast_arithmetic import fast_arithmetic
from chita.model.forward import device_of, logits_of
from chita.model.training_step import TrainingStep


class Step(TrainingStep):
    """The forward and backward pass of a batch of images, or of other samples.

    A sparsifier must change its tensors in place, since a CUDA graph refers to them.

    Args:
        model: returns (B, classes) logits or log-probabilities.
        sparsifier: may replace weights and add a penalty to the loss.
        parameters: the parameters of the optimizer.
        data: the images, whose mean and standard deviation normalise the inputs.
        objective: the loss of the outputs.
    """

    def __init__(
        self,
        model: nn.Module,
        sparsifier: Sparsifier,
        *,
        parameters: Sequence[nn.Parameter],
        data: Images,
        objective: Objective,
    ) -> None:
        super().__init__(model, parameters)
        self._sparsifier = sparsifier
        self._objective = objective
        self._place = device_of(model)
        self._normalises = bool(data.mean)
        # (x / 255 - mean) / std of a pixel x is one product and one sum.
        mean, std = (torch.tensor(each)[:, None, None] for each in (data.mean, data.std))
        self._scale = (1 / (255 * std)).to(self._place)
        self._shift = (-mean / std).to(self._place)

    def forward_backward(self, *batch: Tensor) -> Tensor:
        """Accumulate gradients, and return the loss without the sparsifier's penalty.

        Args:
            batch: images, (B, C, H, W) uint8, or samples without normalisation, (B, ...), and
                labels, (B,).
        """
        images, labels = batch
        inputs = self._normalised(images) if self._normalises else images
        effective = self._sparsifier.effective()
        with fast_arithmetic(self._place, self.parameters):
            outputs = logits_of(functional_call(self.model, effective, (inputs,)))
            loss = self._objective(outputs.float(), inputs, labels)
        penalty = self._sparsifier.penalty()
        total = loss if penalty is None else loss + penalty
        total.backward()  # type: ignore[no-untyped-call]
        return loss.detach()

    @property
    def _on_gpu(self) -> bool:
        return self._place.type == "cuda"

    def _normalised(self, images: Tensor) -> Tensor:
        inputs = images * self._scale + self._shift
        # The memory format of tensor cores; convolutions preserve it.
        return inputs.contiguous(memory_format=torch.channels_last) if self._on_gpu else inputs
