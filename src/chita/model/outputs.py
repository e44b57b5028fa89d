"""How a model is called with a batch's inputs, and what of its outputs is its answer."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from chita.errors import ChitaError

LOGITS = ("logits", "out")  # of Hugging Face models, of torchvision's segmentation
FEATURES = ("last_hidden_state",)  # of Hugging Face models without a head


def run_model(model: nn.Module, inputs: tuple[Any, ...]) -> Any:
    """model(*inputs); a single dict is the model's keywords where its forward pass has these.

    So a pair (tokenizer(...), labels) does what it looks like, and a model that takes a dict for
    its one argument still gets it.
    """
    if len(inputs) == 1 and isinstance(inputs[0], Mapping) and _has_keywords(model, inputs[0]):
        return model(**inputs[0])
    return model(*inputs)


def _has_keywords(model: nn.Module, keywords: Mapping[str, Any]) -> bool:
    try:
        inspect.signature(model.forward).bind(**keywords)
    except TypeError:
        return False
    return True


def logits_of(outputs: Any) -> Any:
    """The logits among outputs that have a name for them; other outputs as they are."""
    found = _named(outputs, LOGITS)
    return outputs if found is None else found


def features_of(outputs: Any) -> Tensor | None:
    """The last hidden state, if that is all the outputs have to offer."""
    return _named(outputs, FEATURES) if _named(outputs, LOGITS) is None else None


def answer_of(outputs: Any) -> Tensor:
    """What a model says, (samples, places..., d): d classes or features at each place.

    The first of several outputs counts. Pictures have their classes in dimension 1, as torch's
    cross-entropy has it, and everything else in the last one.
    """
    answer: Any = features_of(outputs)
    if answer is None:
        answer = logits_of(outputs)
    if isinstance(answer, (tuple, list)) and answer:
        answer = answer[0]
    if not isinstance(answer, Tensor) or answer.ndim == 0:
        raise ChitaError(
            f"loss='distill' finds no answer in the model's outputs of type "
            f"{type(outputs).__name__}: they must be a tensor, the first of a tuple, or named "
            f"{', '.join((*LOGITS, *FEATURES))}"
        )
    if answer.ndim == 1:
        return answer.unsqueeze(1)
    return answer.movedim(1, -1) if answer.ndim > 3 else answer


def _named(outputs: Any, names: tuple[str, ...]) -> Tensor | None:
    for name in names:
        found = outputs.get(name) if isinstance(outputs, Mapping) else getattr(outputs, name, None)
        if isinstance(found, Tensor):
            return found
    return None
