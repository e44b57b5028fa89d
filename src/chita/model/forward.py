"""The forward pass: the mode and device of a model, its call, and the parts of its outputs."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DataParallel, DistributedDataParallel
from torch.optim.swa_utils import AveragedModel

from chita.errors import ChitaError
from chita.model.token_models import DECODER, MASK, has_decoder, without_cache
from chita.model.weights import Weights

LOGITS = ("logits", "out")  # names in Hugging Face's models and torchvision's segmentation models
FEATURES = ("last_hidden_state",)  # name in Hugging Face's models without a head

# A pass that stores no activations fits as many times more samples.
FORWARD_ONLY_FACTOR = 8

Example = Any  # a tensor, a tuple of the model's arguments, or a dict of its keyword arguments


def unwrapped(model: nn.Module) -> nn.Module:
    """Return the module inside DistributedDataParallel, torch.compile or averaged weights."""
    while True:
        if isinstance(model, (AveragedModel, DataParallel, DistributedDataParallel)):
            model = model.module
        elif isinstance(inner := getattr(model, "_orig_mod", None), nn.Module):
            model = inner
        else:
            return model


def device_of(model: nn.Module) -> torch.device:
    """Return the device of the model's first parameter or buffer, or the CPU without any."""
    for tensor in (*model.parameters(), *model.buffers()):
        return tensor.device
    return torch.device("cpu")


@contextmanager
def modes_restored(model: nn.Module) -> Iterator[None]:
    """Restore the training flag of every module at the end, also after an error."""
    flags = [(module, module.training) for module in model.modules()]
    try:
        yield
    finally:
        for module, flag in flags:
            module.training = flag


@contextmanager
def buffers_restored(model: nn.Module) -> Iterator[None]:
    """Restore the values of all buffers, such as batch norm's running means, at the end."""
    before = [(buffer, buffer.clone()) for buffer in model.buffers()]
    try:
        yield
    finally:
        for buffer, values in before:
            buffer.copy_(values)


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Put the model into eval mode, in which batch norm does not mix samples, until the end.

    A language model stores no keys and values of its attention.
    """
    with modes_restored(model), without_cache(model):
        model.eval()
        yield


@contextmanager
def differentiable(weights: Weights) -> Iterator[None]:
    """Enable gradients of all prunable weights, also of frozen ones and under `no_grad`."""
    flags = [(weight.parameter, weight.parameter.requires_grad) for weight in weights]
    try:
        for parameter, _ in flags:
            parameter.requires_grad_(True)
        with torch.inference_mode(False), torch.enable_grad():
            yield
    finally:
        for parameter, flag in flags:
            parameter.requires_grad_(flag)


def run_model(model: nn.Module, inputs: tuple[Any, ...]) -> Any:
    """Call model(*inputs); expand a single dict into keywords if the forward pass accepts them.

    A pair (tokenizer(...), labels) therefore works as expected, and a model whose one argument is
    a dict still receives it.
    """
    if len(inputs) == 1 and isinstance(inputs[0], Mapping) and _accepts(model, inputs[0]):
        return model(**inputs[0])
    return model(*inputs)


def call(model: nn.Module, example: Example) -> Any:
    """Call the model with an example: a tensor, a tuple of arguments or a dict of keywords."""
    if isinstance(example, Mapping):
        return model(**example)
    return run_model(model, example if isinstance(example, tuple) else (example,))


def _accepts(model: nn.Module, keywords: Mapping[str, Any]) -> bool:
    try:
        inspect.signature(model.forward).bind(**keywords)
    except TypeError:
        return False
    return True


def logits_of(outputs: Any) -> Any:
    """Return the logits of outputs with named fields; return other outputs unchanged."""
    found = _named(outputs, LOGITS)
    return outputs if found is None else found


def features_of(outputs: Any) -> Tensor | None:
    """Return the last hidden state of outputs without logits, or None."""
    return _named(outputs, FEATURES) if _named(outputs, LOGITS) is None else None


def answer_of(outputs: Any) -> Tensor:
    """Return the model's answer, (samples, positions..., d): d classes or features per position.

    Of several outputs, the first is used. Images have their classes in dimension 1, as in torch's
    cross-entropy; all other outputs have them in the last dimension.
    """
    answer: Any = features_of(outputs)
    if answer is None:
        answer = logits_of(outputs)
    if isinstance(answer, (tuple, list)) and answer:
        answer = answer[0]
    if not isinstance(answer, Tensor) or answer.ndim == 0:
        raise ChitaError(
            "loss='distill' needs a tensor, a tuple that starts with one, or outputs with a field "
            f"named {', '.join((*LOGITS, *FEATURES))}, got outputs of type {type(outputs).__name__}"
        )
    if answer.ndim == 1:
        return answer.unsqueeze(1)
    return answer.movedim(1, -1) if answer.ndim > 3 else answer


def attention_mask(model: nn.Module, inputs: Any) -> Tensor | None:
    """Return the attention mask of the positions of the outputs, (B, L), 0 at padding, or None.

    Args:
        model: the model. That of an encoder and a decoder answers at the positions of the decoder.
        inputs: its arguments, a tuple that may start with a dict of keywords, or such a dict.
    """
    first = inputs[0] if isinstance(inputs, tuple) and inputs else inputs
    keywords = first if isinstance(first, Mapping) else {}
    mask = keywords.get(f"{DECODER}{MASK}" if has_decoder(model) else MASK)
    return mask if isinstance(mask, Tensor) and mask.ndim == 2 else None


def _named(outputs: Any, names: tuple[str, ...]) -> Tensor | None:
    for name in names:
        found = outputs.get(name) if isinstance(outputs, Mapping) else getattr(outputs, name, None)
        if isinstance(found, Tensor):
            return found
    return None
