"""The option --set: arguments of the function that builds a network."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import Annotated, Any

import typer

from chita.errors import ChitaError

_WORDS = {"true": True, "false": False, "none": None, "null": None}


def read_arguments(texts: Iterable[str] | None) -> dict[str, Any]:
    """Read a list of NAME=VALUE; a value that is not a Python literal, true or false is text.

    Raises:
        ChitaError: a text does not have this form, or a name is given twice.
    """
    arguments: dict[str, Any] = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not equals or not name.isidentifier():
            raise ChitaError(f"--set must be NAME=VALUE, such as num_classes=10, got {text!r}")
        if name in arguments:
            raise ChitaError(f"--set gives {name!r} twice: {arguments[name]!r} and {value}")
        arguments[name] = _read_value(value)
    return arguments


def _read_value(text: str) -> Any:
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text


Arguments = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="Argument of the function that builds MODEL, such as num_classes=10 (repeatable).",
    ),
]
