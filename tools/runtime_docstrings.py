"""Show docstrings that are completed at import in the documentation.

mkdocstrings reads the sources without running them, but the lists of options in the docstrings of
`chita.prune` and `chita.PruneConfig` are generated from the declarations of the options. This
extension of griffe (see `mkdocs.yml`) replaces the docstrings of both by those of the imported
objects.
"""

from __future__ import annotations

import inspect
from typing import Any

import griffe

import chita

COMPLETED = {
    "chita.pruning.prune.prune": chita.prune,
    "chita.pruning.config.PruneConfig": chita.PruneConfig,
}


class RuntimeDocstrings(griffe.Extension):
    """Replace the docstrings of the objects in COMPLETED."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Replace the docstring of an object that griffe has read."""
        if obj.path in COMPLETED and obj.docstring is not None:
            obj.docstring.value = inspect.getdoc(COMPLETED[obj.path]) or ""
