"""ChitaError, and the argument checks that every part shares."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Container, Iterable, Mapping
from numbers import Integral, Real
from typing import Any


class ChitaError(ValueError):
    """A user error: the message names the argument, its value and the valid values."""


def require(name: str, value: Any, holds: Callable[[Any], bool], what: str) -> None:
    """Raise a ChitaError unless `holds(value)`; `what` describes the valid values."""
    if not holds(value):
        raise ChitaError(f"{name} must be {what}, got {value!r}")


def closest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that a misspelt one probably means; None if none is close."""
    return next(iter(difflib.get_close_matches(name, list(known), n=1)), None)


def describe_error(error: BaseException) -> str:
    """Return the type and the text of an exception in one line, such as "KeyError: 'weight'"."""
    return ": ".join(filter(None, (type(error).__name__, " ".join(str(error).split()))))


def is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def is_finite(value: Any) -> bool:
    """Return whether a value, such as a number or a scalar tensor, is a finite float."""
    try:
        return math.isfinite(value)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        return False


def is_one_of(value: Any, names: Container[str]) -> bool:
    """Return whether a value is one of some names; lists and arrays are not, without an error."""
    return isinstance(value, str) and value in names


def is_share(value: Any) -> bool:
    return is_number(value) and 0 <= value < 1


def is_percentage(value: Any) -> bool:
    """Return whether a value is a percentage; a share such as 0.95 is not accepted as one."""
    return is_not_negative(value) and 1 < value <= 100


def is_not_negative(value: Any) -> bool:
    return is_number(value) and is_finite(value) and value >= 0


def is_natural(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= 0


def is_negative_integer(value: Any) -> bool:
    return isinstance(value, Integral) and int(value) < 0


def is_seed(value: Any) -> bool:
    return is_natural(value) and value < 2**64


def is_count(value: Any) -> bool:
    return is_natural(value) and value >= 1


def is_bool(value: Any) -> bool:
    return isinstance(value, bool)


def require_bools(**given: Any) -> None:
    """Raise a ChitaError if an argument is neither True nor False, such as the text "no"."""
    for name, value in given.items():
        require(name, value, is_bool, "True or False")


def is_flag(value: Any) -> bool:
    """Return whether a value is True, False or None, which leaves the choice open."""
    return value is None or isinstance(value, bool)


def is_function_or_none(value: Any) -> bool:
    return value is None or callable(value)


def are_names(value: Any) -> bool:
    """Return whether a value is a tuple of names; a single string is not accepted as one."""
    return isinstance(value, tuple) and all(isinstance(name, str) and name for name in value)


PATTERNS = "a glob pattern of parameter names, or several"


def are_patterns(value: Any) -> bool:
    several = isinstance(value, (list, tuple)) and all(isinstance(item, str) for item in value)
    return value is None or isinstance(value, str) or several


def are_shares(value: Any) -> bool:
    return isinstance(value, Mapping) and all(
        isinstance(pattern, str) and is_share(share) for pattern, share in value.items()
    )
