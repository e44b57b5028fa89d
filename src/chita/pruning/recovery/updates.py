"""Updates of recovery: Adam, with steps relative to the size of the weights.

The weights of a trained network differ in scale: by orders of magnitude between channels if batch
norm is folded into them. Adam moves every weight by about the learning rate, whatever its
gradient. Here each step is multiplied by the scale of the weights of the output channel, so that
one relative rate serves all layers of all networks. Pruned weights have the scale 0 and stay zero.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor, nn

from chita.model.layers import WITHIN_CHANNEL, Axes, axes_of

BETA1, BETA2 = 0.9, 0.999  # Adam's decay rates of the mean and of the square of the gradient
LEAST_SIZE = 1e-20  # added to the size of a gradient; the square of a smaller one underflows
WARM_UP = 0.05  # the share of the steps in which the rate rises

Masks = Mapping[nn.Parameter, Tensor]  # True where a weight is kept
Scales = Mapping[nn.Parameter, Tensor]  # of each entry of a parameter


def rate_at(step: int, steps: int) -> float:
    """Return the fraction of the highest rate at a step: a short rise, then a cosine to zero."""
    rise = max(1.0, WARM_UP * steps)
    if step < rise:
        return (step + 1) / (rise + 1)
    return 0.5 * (1 + math.cos(math.pi * (step - rise) / max(steps - rise, 1.0)))


class RelativeAdam:
    """The state of Adam for some parameters.

    Parameters of less than float32 precision are updated in a float32 copy, since their own
    rounding would cancel small steps.

    Args:
        scales: the scale of each entry, by parameter; 0 for entries that must not move.
    """

    def __init__(self, scales: Scales) -> None:
        alike: dict[tuple[torch.dtype, torch.device], list[nn.Parameter]] = {}
        for parameter in scales:
            alike.setdefault((_precise(parameter).dtype, parameter.device), []).append(parameter)
        self._vectors = [_Vector(found, scales) for found in alike.values()]
        self._steps = 0

    def restart(self, scales: Scales) -> None:
        """Begin another training of the same parameters, from their present values."""
        self._steps = 0
        for vector in self._vectors:
            vector.restart(scales)

    def begin_step(self, rate: float) -> None:
        """Set the factor of the next step from its rate and its number."""
        self._steps += 1
        corrected = math.sqrt(1 - BETA2**self._steps) / (1 - BETA1**self._steps)
        for vector in self._vectors:
            vector.factor.fill_(-rate * corrected)

    @torch.no_grad()
    def apply(self) -> None:
        """Update the parameters by their gradients; the calls can be captured in a CUDA graph."""
        for vector in self._vectors:
            vector.apply()


class _Vector:
    """Parameters of one precision and device, whose state is one vector.

    A network has many small parameters. Kernels for each of them, or for lists of them, take longer
    to launch than to run.

    Args:
        parameters: the parameters.
        scales: the scale of each entry, by parameter.

    Attributes:
        factor: multiplies the next step, a scalar; 0 before it is set.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], scales: Scales) -> None:
        self._parameters = parameters
        self._values = [_precise(parameter) for parameter in parameters]
        self._sizes = [parameter.numel() for parameter in parameters]
        self._scale = _joined(parameters, scales)
        self._mean, self._square = torch.zeros_like(self._scale), torch.zeros_like(self._scale)
        self.factor = self._scale.new_zeros(())

    def restart(self, scales: Scales) -> None:
        """Forget all gradients, and take new scales and the present values."""
        self._scale.copy_(_joined(self._parameters, scales))
        for state in (self._mean, self._square, self.factor):
            state.zero_()
        for value, parameter in self._copies():
            value.copy_(parameter.detach())

    def apply(self) -> None:
        """Make a step."""
        gradient = torch.cat([self._gradient(each).flatten() for each in self._parameters])
        self._mean.lerp_(gradient, 1 - BETA1)
        self._square.mul_(BETA2).addcmul_(gradient, gradient, value=1 - BETA2)
        size = torch.sqrt(self._square, out=gradient).add_(LEAST_SIZE)
        change = torch.div(self._mean, size, out=size).mul_(self._scale).mul_(self.factor)
        parts = [
            part.view_as(value)
            for part, value in zip(torch.split(change, self._sizes), self._values, strict=True)
        ]
        torch._foreach_add_(self._values, parts)
        for value, parameter in self._copies():
            parameter.copy_(value)

    def _copies(self) -> Iterator[tuple[Tensor, nn.Parameter]]:
        """Yield the copies in float32, and their parameters."""
        for value, parameter in zip(self._values, self._parameters, strict=True):
            if value.data_ptr() != parameter.data_ptr():
                yield value, parameter

    def _gradient(self, parameter: nn.Parameter) -> Tensor:
        """Return the gradient in the precision of the state; zero without one."""
        if parameter.grad is None:
            return torch.zeros_like(parameter, dtype=self._scale.dtype)
        return parameter.grad.to(self._scale.dtype)


def _joined(parameters: Sequence[nn.Parameter], scales: Scales) -> Tensor:
    """Return the scales of the parameters, (size,)."""
    return torch.cat([scales[parameter].flatten() for parameter in parameters])


def _precise(parameter: nn.Parameter) -> Tensor:
    """Return the values in float32 at least; for such a parameter, the values themselves."""
    values = parameter.detach()
    return values if values.dtype in (torch.float32, torch.float64) else values.float()


@torch.no_grad()
def relative_scales(
    model: nn.Module, parameters: Sequence[nn.Parameter], masks: Masks
) -> dict[nn.Parameter, Tensor]:
    """Return the scale of each entry of the parameters; 0 for pruned weights.

    The scale of a weight is the root mean square of the kept weights of its output channel. The
    scale of a bias, or of another vector, is its size, but at least the scale of the weights of its
    channel. Where a layer is zero, the root mean square of all parameters takes its place.

    Args:
        model: the model.
        parameters: the parameters that are trained.
        masks: the kept weights of the pruned parameters.
    """
    typical = _root_mean_square([_precise(parameter) for parameter in parameters])
    axes = _axes(model)
    weights = _weights_of_biases(model, axes)
    scales = {}
    for parameter in parameters:
        mask, weight = masks.get(parameter), weights.get(parameter)
        scale = _own_scale(parameter, axes.get(parameter), mask)
        if weight is not None:
            of_weight = _channel_scale(weight, axes.get(weight), masks.get(weight))
            scale = torch.maximum(_precise(parameter).abs(), of_weight)
        scale = torch.where(scale > 0, scale, typical.to(scale))
        scales[parameter] = scale if mask is None else scale * mask
    return scales


def _own_scale(parameter: nn.Parameter, axes: Axes | None, mask: Tensor | None) -> Tensor:
    """Return the scale of each entry by the parameter alone, in its shape."""
    values = _precise(parameter)
    if axes is None:
        return torch.maximum(values.abs(), values.square().mean().sqrt())
    return _by_channel(values, axes, mask).expand(axes).reshape(values.shape)


def _channel_scale(weight: nn.Parameter, axes: Axes | None, mask: Tensor | None) -> Tensor:
    """Return the scale of each output channel of a weight, (channels,)."""
    if axes is None:
        return _own_scale(weight, None, mask)
    return _by_channel(_precise(weight), axes, mask).flatten()


def _by_channel(values: Tensor, axes: Axes, mask: Tensor | None) -> Tensor:
    """Return the root mean square of the kept weights of each output channel, as `Axes`."""
    values = values.reshape(axes)
    kept = torch.ones_like(values) if mask is None else mask.reshape(axes).to(values.dtype)
    squares = (values.square() * kept).sum(WITHIN_CHANNEL, keepdim=True)
    return (squares / kept.sum(WITHIN_CHANNEL, keepdim=True).clamp_min(1)).sqrt()


def _axes(model: nn.Module) -> dict[nn.Parameter, Axes]:
    """Return the axes of all parameters that are matrices or kernels."""
    return {
        parameter: axes_of(module, name)
        for module in model.modules()
        for name, parameter in module.named_parameters(recurse=False)
        if parameter.ndim > 1
    }


def _weights_of_biases(
    model: nn.Module, axes: Mapping[nn.Parameter, Axes]
) -> dict[nn.Parameter, nn.Parameter]:
    """Return the weight that each bias belongs to, where both have the same channels."""
    found = {}
    for module in model.modules():
        own = dict(module.named_parameters(recurse=False))
        weight, bias = own.get("weight"), own.get("bias")
        if weight is None or bias is None:
            continue
        shape = axes.get(weight)
        channels = weight.numel() if shape is None else shape.groups * shape.outputs
        if bias.shape == (channels,):
            found[bias] = weight
    return found


def _root_mean_square(tensors: Sequence[Tensor]) -> Tensor:
    total = torch.stack([tensor.square().sum().double() for tensor in tensors]).sum()
    return (total / max(sum(tensor.numel() for tensor in tensors), 1)).sqrt()
