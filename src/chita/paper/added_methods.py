"""Methods that users add to the benchmarks, and the files that define them."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Iterator
from pathlib import Path

from chita.errors import ChitaError
from chita.methods import BUILT_IN, Method, method_names
from chita.report.published import NAMES

# Names that the tables use for other rows.
TAKEN = (*NAMES.values(), "LAMP", "dense")


def added_methods() -> list[str]:
    """Return the methods that a user or an installed package has registered.

    Raises:
        ChitaError: a method has the name of another row of the tables.
    """
    added = [name for name in method_names() if name not in BUILT_IN]
    for name in added:
        if name in TAKEN:
            raise ChitaError(
                f"the method {name!r} has the name of another row of the tables: register it under "
                "a name of its own"
            )
    return added


def source_key(method: Method) -> dict[str, str]:
    """Return the part of a cell's key that changes with the files that define a method.

    It is empty for the methods of chita, which have versions, and for code without a file. A
    method that is edited between two runs is therefore computed again, and no other cell is.
    """
    files = sorted(set(_files(method)))
    if not files:
        return {}
    content = b"".join(Path(file).read_bytes() for file in files)
    return {"source": hashlib.sha256(content).hexdigest()[:16]}


def _files(method: Method) -> Iterator[str]:
    """Yield the files of the curvature source, of the algorithm and of the functions inside it."""
    algorithm = method.algorithm
    parts = (method.curvature, type(algorithm), *getattr(algorithm, "__dict__", {}).values())
    for part in parts:
        if not (inspect.isclass(part) or inspect.isfunction(part)):
            continue
        if part.__module__.split(".")[0] == "chita":
            continue
        try:
            file = inspect.getsourcefile(part)
        except TypeError:  # a class of an interactive session
            continue
        if file is not None and Path(file).is_file():
            yield file
