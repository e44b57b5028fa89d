"""Which parameters are prunable unless the user says otherwise, and what is left alone, and why.

These are the matrices that a network multiplies with: of Linear and convolution layers, of the
Conv1D of Hugging Face transformers, and the projections inside torch's MultiheadAttention.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

logger = logging.getLogger(__name__)

PROJECTIONS = ("in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight")
EMBEDDINGS = (nn.Embedding, nn.EmbeddingBag)


def prunable_by_default(model: nn.Module) -> Iterator[nn.Parameter]:
    """The parameters of `model` that are pruned by default; one that is shared may come twice."""
    embeddings = {id(m.weight): name for name, m in model.named_modules() if _is_embedding(m)}
    for prefix, module in model.named_modules():
        for name in _names(module):
            weight = getattr(module, name)
            full = f"{prefix}.{name}".removeprefix(".")
            if not isinstance(weight, nn.Parameter):
                logger.warning("%s is left dense: %s", full, _reason(module, name))
            elif id(weight) in embeddings:
                logger.info(
                    "%s is left dense: it is the embedding %s as well; include=%r prunes both",
                    full,
                    embeddings[id(weight)],
                    full,
                )
            else:
                yield weight


def _names(module: nn.Module) -> tuple[str, ...]:
    """The names of the matrices that a module multiplies with."""
    if isinstance(module, nn.MultiheadAttention):
        return tuple(name for name in PROJECTIONS if getattr(module, name) is not None)
    if isinstance(module, (nn.Linear, _ConvNd)) or is_conv1d(module) or _is_quantized(module):
        return ("weight",)
    return ()


def is_conv1d(module: nn.Module) -> bool:
    """The linear layer of GPT-2, weight (inputs, outputs), told without importing transformers."""
    named = type(module).__name__.endswith("Conv1D") and hasattr(module, "nf")
    return named and isinstance(getattr(module, "weight", None), Tensor)


def _is_quantized(module: nn.Module) -> bool:
    """A layer of torch.ao.nn.quantized, which has packed its weight away."""
    return callable(getattr(module, "weight", None)) and hasattr(module, "scale")


def _is_embedding(module: nn.Module) -> bool:
    return isinstance(module, EMBEDDINGS) and isinstance(module.weight, nn.Parameter)


def _reason(module: nn.Module, name: str) -> str:
    """Why a weight is no parameter, and what to do about it."""
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
        return "it is quantized; prune the network before it is"
    return "it is no parameter of its layer"
