"""Import a user's modules and files, and find the objects in them that a text refers to."""

from __future__ import annotations

import importlib
import importlib.util
import logging
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from chita.errors import ChitaError, closest, describe_error

logger = logging.getLogger(__name__)

FORMS = "MODULE:NAME or FILE.py:NAME"
VALID = "give the name of an installed module, or the path of a .py file"


def is_reference(text: str) -> bool:
    """Return whether a text has the form of a reference, MODULE:NAME or FILE.py:NAME."""
    return ":" in text


def name_missing(text: str) -> str:
    """Return a remedy for an error message if `text` is a Python file without ":NAME"."""
    return (
        f"; name a function or an object in the file: {text}:NAME" if text.endswith(".py") else ""
    )


def load_object(text: str) -> Any:
    """Return the object that a reference names.

    Args:
        text: "package.module:name" or "path/file.py:name"; the name may be dotted, as in
            "module:Class.method". Modules in the current folder can be imported, as with
            `python -m`.

    Raises:
        ChitaError: the module or the name does not exist, or the import fails.
    """
    module_name, _, name = text.rpartition(":")
    if not module_name or not all(part.isidentifier() for part in name.split(".")):
        raise ChitaError(f"{text!r} is not a reference; give {FORMS}")
    found: Any = import_module_or_file(module_name)
    for part in name.split("."):
        if not hasattr(found, part):
            near = closest(part, [known for known in dir(found) if not known.startswith("__")])
            hint = f"; did you mean {near!r}?" if near else ""
            raise ChitaError(f"{text}: {_name_of(found)} has no {part!r}{hint}")
        found = getattr(found, part)
    return found


def import_module_or_file(name: str) -> ModuleType:
    """Import a module, given by its name or as the path of a Python file.

    Raises:
        ChitaError: the module or file does not exist, or its import fails.
    """
    _make_importable(Path.cwd())
    try:
        return _import_file(name) if name.endswith(".py") else _import_module(name)
    except ChitaError as error:
        raise ChitaError(f"cannot import {name or repr(name)}: {error}") from error
    except (Exception, SystemExit) as error:  # the module may raise any exception
        logger.info("the import of %s failed", name, exc_info=error)
        raise ChitaError(f"cannot import {name}: {describe_error(error)}") from error


def _import_module(name: str) -> ModuleType:
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
    return module


def _import_file(name: str) -> ModuleType:
    path = Path(name).resolve()
    if path.is_dir():
        raise ChitaError(f"it is a folder; {VALID}")
    if not path.is_file():
        raise ChitaError(f"there is no such file in {Path.cwd()}")
    loaded = sys.modules.get(path.stem)
    if loaded is not None and getattr(loaded, "__file__", None) == str(path):
        return loaded
    if loaded is not None:
        raise ChitaError(f"a module named {path.stem!r} is already loaded; rename the file")
    _make_importable(path.parent)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # pickle and dataclasses look a class up in its module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[path.stem]
        raise
    return module


def _make_importable(folder: Path) -> None:
    """Add a folder to the path of imports, as Python does with that of a script."""
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def _name_of(found: Any) -> str:
    return str(getattr(found, "__name__", type(found).__name__))
