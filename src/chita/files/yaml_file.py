"""Read YAML files, whose aliases may stand for more than fits into memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from chita.errors import ChitaError, describe_error
from chita.files.regular import read_regular

_MOST_BYTES = 1_000_000
_MOST_VALUES = 100_000  # with aliases written out; a configuration has about a hundred


def read_yaml(path: Path) -> Any:
    """Return the content of a YAML file.

    Raises:
        ChitaError: the file cannot be read, is not YAML, or its aliases stand for too many values.
    """
    try:
        return yaml.load(read_regular(path, _MOST_BYTES), _BoundedLoader)
    except (ChitaError, OSError, yaml.YAMLError) as error:
        line = " ".join(str(error).split())  # the parser shows the place below its message
        raise ChitaError(f"cannot read {path} as YAML: {line}") from error
    except Exception as error:  # a value that does not fit its tag, or nesting without end
        raise ChitaError(f"cannot read {path} as YAML: {describe_error(error)}") from error


class _BoundedLoader(yaml.SafeLoader):
    """A loader that refuses aliases which stand for too many values."""

    def get_single_node(self) -> yaml.Node | None:
        """Return the document as nodes; an alias is the node that it refers to."""
        node = super().get_single_node()
        if node is not None and _count_values(node, {}) > _MOST_VALUES:
            raise ChitaError(f"its aliases stand for more than {_MOST_VALUES} values")
        return node


def _count_values(node: yaml.Node, counted: dict[yaml.Node, int | None]) -> int:
    """Return the number of values below a node, with aliases written out.

    Args:
        node: the node.
        counted: the counts so far; None for a node that contains this one.
    """
    if node not in counted:
        counted[node] = None
        below = node.value if isinstance(node, yaml.CollectionNode) else []
        parts = [part for item in below for part in (item if isinstance(item, tuple) else (item,))]
        counted[node] = 1 + sum(_count_values(part, counted) for part in parts)
    count = counted[node]
    if count is None:
        raise ChitaError("an alias in it refers to a value that contains the alias")
    return count
