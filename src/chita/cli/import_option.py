"""The option --import: load a user's module, which registers methods, before a command runs."""

from __future__ import annotations

from typing import Annotated

import typer

from chita.references.python_object import import_module_or_file


def import_modules(names: list[str] | None) -> list[str] | None:
    """Import each module, given by its name or as the path of a Python file.

    Raises:
        ChitaError: A module or file does not exist, or its import fails.
    """
    for name in names or ():
        import_module_or_file(name)
    return names


Imports = Annotated[
    list[str] | None,
    typer.Option(
        "--import",
        metavar="MODULE",
        callback=import_modules,
        help="Module or .py file to import first, such as one that registers a method "
        "(repeatable).",
    ),
]
