"""The option --import: load a user's module, which registers methods, before a command runs."""

from __future__ import annotations

import importlib
import importlib.util
import logging
import sys
from pathlib import Path
from typing import Annotated

import typer

from chita.errors import ChitaError, describe

logger = logging.getLogger(__name__)

VALID = "give the name of an installed module, or the path of a .py file"


def import_modules(names: list[str] | None) -> list[str] | None:
    """Import each module, given by its name or as the path of a Python file.

    Raises:
        ChitaError: A module or file does not exist, or its import fails.
    """
    for name in names or ():
        try:
            if name.endswith(".py"):
                _import_file(name)
            else:
                _import_module(name)
        except ChitaError as error:
            raise ChitaError(f"cannot import {name or repr(name)}: {error}") from error
        except (Exception, SystemExit) as error:  # the module may raise any exception
            logger.info("the import of %s failed", name, exc_info=error)
            raise ChitaError(f"cannot import {name}: {describe(error)}") from error
    return names


def _import_module(name: str) -> None:
    if not all(part.isidentifier() for part in name.split(".")):
        raise ChitaError(f"it is not the name of a module; {VALID}")
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise  # the module exists, and one of its own imports failed
        raise ChitaError(f"there is no such module; {VALID}") from None
    spec = module.__spec__
    if spec is not None and spec.origin is None:  # Python imports any folder as a namespace package
        raise ChitaError(f"it is a folder without an __init__.py; {VALID}")


def _import_file(name: str) -> None:
    path = Path(name).resolve()
    if path.is_dir():
        raise ChitaError(f"it is a folder; {VALID}")
    if not path.is_file():
        raise ChitaError("there is no such file")
    loaded = sys.modules.get(path.stem)
    if loaded is not None and getattr(loaded, "__file__", None) == str(path):
        return
    if loaded is not None:
        raise ChitaError(f"a module named {path.stem!r} is already loaded; rename the file")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # pickle and dataclasses look a class up in its module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[path.stem]
        raise


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
