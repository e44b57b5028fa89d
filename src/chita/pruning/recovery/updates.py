"""Updates of recovery: Adam, with steps relative to the size of the weights.

The weights of a trained network differ in scale: by orders of magnitude between channels if batch
norm is folded into them. Adam moves every weight by about the learning rate, whatever its
gradient. Here each step is multiplied by the scale of the weights of the output channel, so that
one relative rate serves all layers of all networks. Pruned weights have the scale 0 and stay zero.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from chita.model.layers import WITHIN_CHANNEL, Axes, axes_of

BETA1, BETA2 = 0.9, 0.999  # Adam's decay rates of the mean and of the square of the gradient
LEAST_SIZE = 1e-20  # added to the size of a gradient; the square of a smaller one underflows
WARM_UP = 0.05  # the share of the steps in which the rate rises

Masks = Mapping[nn.Parameter, Tensor]  # True where a weight is kept


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

    def __init__(self, scales: Mapping[nn.Parameter, Tensor]) -> None:
        self.parameters = list(scales)
        self._values = [_precise(parameter) for parameter in self.parameters]
        self._scales = list(scales.values())
        self._means = [torch.zeros_like(value) for value in self._values]
        self._squares = [torch.zeros_like(value) for value in self._values]
        self._steps = 0

    @torch.no_grad()
    def step(self, rate: float) -> None:
        """Update the parameters by their gradients."""
        self._steps += 1
        gradients = [self._gradient(number) for number in range(len(self.parameters))]
        torch._foreach_lerp_(self._means, gradients, 1 - BETA1)
        torch._foreach_mul_(self._squares, BETA2)
        torch._foreach_addcmul_(self._squares, gradients, gradients, 1 - BETA2)
        sizes = torch._foreach_sqrt(self._squares)
        torch._foreach_div_(sizes, math.sqrt(1 - BETA2**self._steps))
        torch._foreach_add_(sizes, LEAST_SIZE)
        steps = torch._foreach_div(self._means, sizes)
        torch._foreach_mul_(steps, self._scales)
        torch._foreach_add_(self._values, steps, alpha=-rate / (1 - BETA1**self._steps))
        for parameter, value in zip(self.parameters, self._values, strict=True):
            if value.data_ptr() != parameter.data_ptr():
                parameter.copy_(value)

    def _gradient(self, number: int) -> Tensor:
        gradient, value = self.parameters[number].grad, self._values[number]
        return torch.zeros_like(value) if gradient is None else gradient.to(value.dtype)


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
