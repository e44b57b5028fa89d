"""The registry of layer kinds: all properties of a type of layer that chita uses.

The registry states which parameters of a layer are prunable, which axes its weight has, where the
channels of its outputs are and how a call multiplies its weights.
`register_layer` adds a kind.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd

from chita.errors import (
    ChitaError,
    are_names,
    is_function_or_none,
    is_negative_integer,
    require,
)
from chita.model.conv_windows import window_columns
from chita.model.ties import memory_of

logger = logging.getLogger(__name__)


class Axes(NamedTuple):
    """The shape of a weight as a tensor of five dimensions, without a change of its memory.

    An output channel is one group and one output; its weights extend over the other three
    dimensions. Some layers store the inputs before the outputs and others after them; the unused
    one of the two dimensions is 1.
    """

    groups: int
    inputs_before: int
    outputs: int
    inputs_after: int
    kernel: int


# The dimensions of `Axes` that contain the weights of one output channel.
WITHIN_CHANNEL = (1, 3, 4)


def outputs_first(module: nn.Module, weight: Tensor) -> Axes:
    """Return the axes of a weight (outputs, inputs, kernel...)."""
    outputs, inputs, *kernel = _at_least_2d(weight)
    return Axes(1, 1, outputs, inputs, math.prod(kernel))


def inputs_first(module: nn.Module, weight: Tensor) -> Axes:
    """Return the axes of a weight (inputs, outputs / groups, kernel...)."""
    inputs, outputs, *kernel = _at_least_2d(weight)
    groups = getattr(module, "groups", 1)
    return Axes(groups, inputs // groups, outputs, 1, math.prod(kernel))


def _at_least_2d(weight: Tensor) -> tuple[int, ...]:
    return (*weight.shape, 1, 1)[: max(weight.ndim, 2)]


def linear_columns(layer: nn.Module, x: Tensor, output: Tensor) -> Iterator[Tensor]:
    """Yield the inputs (..., i) of a linear layer as columns, (1, i, N)."""
    yield x.reshape(1, -1, x.shape[-1]).mT


@dataclass(frozen=True)
class LayerKind:
    """One kind of layer.

    Attributes:
        classes: the classes of its layers, or names of classes, which need not be imported. A name
            is qualified ("transformers.pytorch_utils.Conv1D") or that of the class alone. Layers
            of subclasses belong to the kind, too.
        weights: the names of the prunable parameters.
        dense: the names of parameters that stay dense, also where another layer shares them.
        applies: a further condition that a layer must meet.
        axes: (layer, weight) -> the axes of a prunable weight.
        channel_dim: the dimension of the channels in inputs and outputs, counted from the end.
        multiplies_at: where a call multiplies all weights once: at each position of its outputs,
            or of its inputs; None if its multiply-adds cannot be counted.
        columns: (layer, inputs, outputs) of a call -> the vectors that the call multiplies with
            the weight, in pieces of shape (groups, inputs, N); None if unknown.
        is_product: whether a layer is the product y = W x + b at each position, W its `weight`
            (outputs, inputs, 1...) and b its `bias`; None if the kind is not a linear map of this
            form with any kernel. Subclasses of `classes` are not linear maps: they may compute
            something else.
    """

    classes: tuple[type[nn.Module] | str, ...]
    weights: tuple[str, ...] = ("weight",)
    dense: tuple[str, ...] = ()
    applies: Callable[[nn.Module], bool] | None = None
    axes: Callable[[nn.Module, Tensor], Axes] = outputs_first
    channel_dim: int = -1
    multiplies_at: Literal["outputs", "inputs"] | None = None
    columns: Callable[[nn.Module, Tensor, Tensor], Iterator[Tensor]] | None = None
    is_product: Callable[[nn.Module], bool] | None = None

    def __post_init__(self) -> None:
        for entry in self.classes if isinstance(self.classes, tuple) else (self.classes,):
            check_layer_class("classes", entry)
        if not isinstance(self.classes, tuple):
            raise ChitaError(f"classes must be a tuple, got {self.classes!r}")
        for name in ("weights", "dense"):
            require(name, getattr(self, name), are_names, 'a tuple of names such as ("weight",)')
        require("axes", self.axes, callable, "a function of a layer and a weight")
        for name in ("applies", "columns", "is_product"):
            require(name, getattr(self, name), is_function_or_none, "a function or None")
        require("channel_dim", self.channel_dim, is_negative_integer, "a negative integer")
        places = ("outputs", "inputs", None)
        require("multiplies_at", self.multiplies_at, places.__contains__, f"one of {places}")

    def includes(self, layer: nn.Module) -> bool:
        """Return whether a layer is of this kind."""
        bases = type(layer).__mro__
        found = any(is_class(base, entry) for base in bases for entry in self.classes)
        return found and (self.applies is None or self.applies(layer))


def check_layer_class(argument: str, given: object) -> None:
    """Raise a ChitaError unless `given` is a class of layers or the name of one."""
    if not isinstance(given, str) and not (
        isinstance(given, type) and issubclass(given, nn.Module)
    ):
        raise ChitaError(f"{argument}: expected a torch.nn.Module class or its name, got {given!r}")


def is_class(cls: type, entry: type | str) -> bool:
    """Return whether `cls` is the class `entry`, or has that name, qualified or not."""
    if isinstance(entry, str):
        return entry in (cls.__name__, f"{cls.__module__}.{cls.__qualname__}")
    return cls is entry


_KINDS: list[LayerKind] = []


def register_layer(kind: LayerKind) -> None:
    """Add a kind of layer. A kind that is registered later takes precedence over earlier ones."""
    if not isinstance(kind, LayerKind):
        raise ChitaError(f"kind must be a LayerKind, got {kind!r:.80}")
    require("classes", kind.classes, bool, "a tuple of at least one class or name of a class")
    _KINDS.insert(0, kind)


OTHER = LayerKind((), weights=())  # the kind of every layer that no registered kind includes


def kind_of(layer: nn.Module) -> LayerKind:
    """Return the kind of a layer; `OTHER` if none is registered."""
    return next((kind for kind in _KINDS if kind.includes(layer)), OTHER)


def axes_of(layer: nn.Module, name: str) -> Axes:
    """Return the axes of a parameter; one that is not prunable by default has its outputs first."""
    kind = kind_of(layer)
    return (kind.axes if name in kind.weights else outputs_first)(layer, layer.get_parameter(name))


def channel_dim(layer: nn.Module) -> int:
    """Return the dimension of the channels in inputs and outputs, counted from the end."""
    return kind_of(layer).channel_dim


def is_linear_map(layer: nn.Module) -> bool:
    """Return whether a layer applies only a weight (outputs, inputs, kernel...) and a bias."""
    kind = kind_of(layer)
    return kind.is_product is not None and any(is_class(type(layer), c) for c in kind.classes)


def is_product(layer: nn.Module) -> bool:
    """Return whether a layer is the product y = W x + b at each position."""
    kind = kind_of(layer)
    return is_linear_map(layer) and kind.is_product is not None and kind.is_product(layer)


def prunable_by_default(model: nn.Module) -> Iterator[nn.Parameter]:
    """Yield the parameters that are pruned by default; a shared one may be yielded twice."""
    dense = {
        memory_of(parameter): prefix
        for prefix, module in model.named_modules()
        for name, parameter in module.named_parameters(recurse=False)
        if name in kind_of(module).dense
    }
    for prefix, module in model.named_modules():
        for name in _weight_names(module):
            weight = getattr(module, name)
            full = f"{prefix}.{name}".removeprefix(".")
            if not isinstance(weight, nn.Parameter):
                logger.warning("%s is left dense: %s", full, _reason(module, name))
            elif memory_of(weight) in dense:
                logger.info(
                    "%s is left dense: it is shared with %s; include=%r prunes both",
                    full,
                    dense[memory_of(weight)],
                    full,
                )
            else:
                yield weight


def _weight_names(module: nn.Module) -> list[str]:
    """Return the names of the weights of a layer, without those that it does not use."""
    names = ("weight",) if _is_quantized(module) else kind_of(module).weights
    return [name for name in names if getattr(module, name, None) is not None]


def _is_quantized(module: nn.Module) -> bool:
    """Return whether this is a layer of torch.ao.nn.quantized, which packs its weight."""
    return callable(getattr(module, "weight", None)) and hasattr(module, "scale")


def _reason(module: nn.Module, name: str) -> str:
    """Explain why a weight is not a parameter, and how to make it one."""
    if hasattr(module, f"{name}_mask"):
        return f"it has a mask; make it permanent by torch.nn.utils.prune.remove(layer, {name!r})"
    if hasattr(module, "parametrizations"):
        return (
            "it is computed from other parameters; undo that first by "
            f"torch.nn.utils.parametrize.remove_parametrizations(layer, {name!r})"
        )
    if hasattr(module, f"{name}_g"):
        return "it has a weight norm; undo that first by torch.nn.utils.remove_weight_norm(layer)"
    if _is_quantized(module):
        return "it is quantized; prune the network before it is quantized"
    return "it is not a parameter of its layer"


def _is_1x1(conv: nn.Module) -> bool:
    """Return whether a convolution has a kernel of size 1, one group and no padding."""
    assert isinstance(conv, _ConvNd)
    # A string stands for a size: "same" adds no zeros around the input of such a kernel.
    padding = () if isinstance(conv.padding, str) else conv.padding
    return set(conv.kernel_size) == {1} and conv.groups == 1 and not any(padding)


def _is_transposed_linear(layer: nn.Module) -> bool:
    return hasattr(layer, "nf") and isinstance(getattr(layer, "weight", None), Tensor)


register_layer(
    LayerKind(
        (nn.Linear,),
        multiplies_at="outputs",
        columns=linear_columns,
        is_product=lambda layer: True,
    )
)
for dimensions, convolution in enumerate((nn.Conv1d, nn.Conv2d, nn.Conv3d), start=1):
    register_layer(
        LayerKind(
            (convolution,),
            channel_dim=-1 - dimensions,
            multiplies_at="outputs",
            columns=window_columns,
            is_product=_is_1x1,
        )
    )
for dimensions, transposed in enumerate(
    (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d), start=1
):
    register_layer(
        LayerKind(
            (transposed,),
            axes=inputs_first,
            channel_dim=-1 - dimensions,
            multiplies_at="inputs",
        )
    )
# The linear layer of GPT-2, whose weight is (inputs, outputs). Models that copy it are included.
register_layer(
    LayerKind(
        ("transformers.pytorch_utils.Conv1D", "Conv1D"),
        applies=_is_transposed_linear,
        axes=inputs_first,
        multiplies_at="outputs",
        columns=linear_columns,
    )
)
# The output projection is a Linear layer.
register_layer(
    LayerKind(
        (nn.MultiheadAttention,),
        weights=("in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight"),
    )
)
register_layer(LayerKind((nn.Embedding, nn.EmbeddingBag), weights=(), dense=("weight",)))


def batch_norm_layers(model: nn.Module) -> list[_BatchNorm]:
    """Return the batch norm layers that have running statistics."""
    return [m for m in model.modules() if isinstance(m, _BatchNorm) and m.track_running_stats]
