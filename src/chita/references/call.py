"""Call functions of users, and report their exceptions."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from chita.errors import ChitaError, describe_error

logger = logging.getLogger(__name__)


def call_given(name: str, function: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
    """Return function(**arguments).

    Args:
        name: the reference of the function, for messages.
        function: a function or a class of the user.
        arguments: the arguments of --set.

    Raises:
        ChitaError: the arguments do not fit the signature, or the function fails.
    """
    _check_arguments(name, function, arguments)
    with failing_as(name):
        return function(**arguments)


@contextmanager
def failing_as(name: str) -> Iterator[None]:
    """Report an exception in the code of a user as a ChitaError that names its reference."""
    try:
        yield
    except ChitaError as error:
        raise ChitaError(f"{name} fails: {error}") from error
    except (Exception, SystemExit) as error:
        logger.info("%s failed", name, exc_info=error)
        raise ChitaError(f"{name} fails: {describe_error(error)}") from error


def _check_arguments(name: str, function: Callable[..., Any], arguments: Mapping[str, Any]) -> None:
    try:
        signature = inspect.signature(function)
    except ValueError:  # a function without a signature, such as one written in C
        return
    try:
        signature.bind(**arguments)
    except TypeError as error:
        accepted = ", ".join(signature.parameters) or "no arguments"
        raise ChitaError(
            f"{name} cannot be called with the given arguments: {error}; it takes {accepted} "
            "(--set NAME=VALUE)"
        ) from None
