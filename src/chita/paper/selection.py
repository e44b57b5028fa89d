"""The cells of a benchmark that a user selects by values of their keys."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from chita.errors import ChitaError
from chita.paper.cells import Cell


def select_cells(cells: Sequence[Cell], only: Sequence[str]) -> list[Cell]:
    """Return the cells whose keys contain the given texts, or all cells if there are none.

    Texts that are values of the same field, such as two networks, are alternatives.

    Args:
        cells: the cells of a benchmark.
        only: values of keys as texts, such as "resnet20" and "0.9".

    Raises:
        ChitaError: no key has a value with such a text, or no cell matches all of them.
    """
    values = _values(cells)
    for text in only:
        if not any(text in known for known in values.values()):
            raise ChitaError(f"--only {text} matches no cell; {_known(values)}")
    wanted = {field: set(only).intersection(known) for field, known in values.items()}
    groups = [{f: found for f, found in wanted.items() if text in found} for text in only]
    selected = [
        cell
        for cell in cells
        if all(
            any(_text(cell.key.get(field)) in found for field, found in group.items())
            for group in groups
        )
    ]
    if not selected:
        given = " ".join(f"--only {text}" for text in only)
        raise ChitaError(f"no cell matches {given} together; {_known(values)}")
    return selected


def _values(cells: Sequence[Cell]) -> dict[str, list[str]]:
    """Return the different values of each field as texts.

    Versions are left out: all cells have the same one, and a seed may have the same number.
    """
    values: dict[str, dict[str, None]] = {}
    for cell in cells:
        for field, value in cell.key.items():
            if (text := _text(value)) is not None and not field.endswith("version"):
                values.setdefault(field, {})[text] = None
    return {field: list(known) for field, known in values.items()}


def _text(value: Any) -> str | None:
    """Return a name or a number as text; None for other values."""
    return str(value) if isinstance(value, (str, int, float)) else None


def _known(values: Mapping[str, Sequence[str]]) -> str:
    """Return a text with the values to choose from, as a shell reads them."""
    fields = "; ".join(
        f"{field} {', '.join(map(shlex.quote, known))}"
        for field, known in values.items()
        if len(known) > 1 or field == "network"
    )
    return f"the cells have {fields}" if fields else "there is only one cell"
