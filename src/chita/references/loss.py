"""Find the loss function that a user's reference names."""

from __future__ import annotations

from chita.errors import ChitaError
from chita.model.losses import Loss
from chita.references.call import call_given
from chita.references.python_object import load_object


def load_loss(text: str) -> Loss:
    """Return the function loss(outputs, targets) that a reference names; a class is created."""
    found = load_object(text)
    function = call_given(text, found, {}) if isinstance(found, type) else found
    if not callable(function):
        raise ChitaError(
            f"{text} is of type {type(function).__name__}; name a function of outputs and targets"
        )
    return function  # type: ignore[no-any-return]
