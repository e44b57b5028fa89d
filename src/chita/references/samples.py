"""Find the data that a user's reference names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from chita.errors import ChitaError
from chita.references.call import call_given
from chita.references.named_data import named_data, named_passes
from chita.references.python_object import load_object


def load_samples(text: str) -> Any:
    """Return the data that a reference names, in any form that `chita.prune` accepts.

    A function is called, and its result returned. If the result is an iterator, as that of a
    generator function, the function itself is returned: it is called for each pass over the data.
    Errors of the user's code while samples are read name the reference.
    """
    found = load_object(text)
    if found is None:
        raise ChitaError(f"{text} is None; name data, or a function that returns data")
    if not isinstance(found, type) and (not callable(found) or _is_data(found)):
        return named_data(text, found)
    given = call_given(text, found, {})
    if given is None:
        raise ChitaError(f"{text} returns None; return the data, or yield its batches")
    if isinstance(given, Iterator):
        return named_passes(text, found)
    return named_data(text, given)


def _is_data(found: Any) -> bool:
    """Return whether an object that can be called has samples of its own."""
    return hasattr(found, "__iter__") or hasattr(found, "__getitem__")
