"""The folds with the settings of a run and with all of its figures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from chita.report.page.folder import Folder
from chita.report.page.parts import Part, fold, pairs

ROWS = ("layers", "stages", "epochs")  # shown elsewhere
EMPTY: tuple[Any, ...] = (None, [], {})


def settings_folds(folder: Folder, defaults: Mapping[str, Any]) -> list[Part]:
    """Return the settings, those that differ from their defaults first, and all figures."""
    config = folder.config
    usual = {
        name: value
        for name, value in config.items()
        if value in EMPTY or _is_default(name, value, defaults)
    }
    tables = {
        "Settings that differ from the defaults": {
            name: value for name, value in config.items() if name not in usual
        },
        "Defaults": {name: "not set" if value in EMPTY else value for name, value in usual.items()},
    }
    settings = [pairs(title, values) for title, values in tables.items() if values]
    figures = {k: v for k, v in (folder.record or {}).items() if k not in ROWS and v not in EMPTY}
    folds = [fold("Settings", tables=settings)] if settings else []
    if figures:
        folds.append(fold("All figures", tables=[pairs("All figures", figures)]))
    return folds


def _is_default(name: str, value: Any, defaults: Mapping[str, Any]) -> bool:
    return name in defaults and type(defaults[name]) is type(value) and defaults[name] == value
