"""The rows of tab:accuracy: a method, or the part of its settings that a row is about."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from chita.paper.settings import PAPER_SCHEDULE, PAPER_STAGES, Setting
from chita.report import published as paper


def _is_continued(setting: Setting) -> bool:
    return setting.continuation > 0


def _has_paper_stages(setting: Setting) -> bool:
    return (
        setting.stages == PAPER_STAGES
        and setting.schedule == PAPER_SCHEDULE
        and setting.hold == 0
        and setting.continuation == 0
    )


@dataclass(frozen=True)
class Entry:
    """A row of the table.

    Attributes:
        title: what the row is called.
        method: the method that it shows.
        takes: tells which settings of the method belong to the row.
        main: whether to show the row even if nothing was measured for it.
        in_paper: whether the paper's figures for the method stand beside it.
    """

    title: str
    method: str
    takes: Callable[[Setting], bool] = lambda setting: True
    main: bool = True
    in_paper: bool = True


def _entries_of(method: str, title: str) -> list[Entry]:
    if method == "chita-bso":
        continued = f"{title}, continuation"
        return [
            Entry(title, method, lambda setting: not _is_continued(setting)),
            Entry(continued, method, _is_continued, main=False, in_paper=False),
        ]
    if method == "chita++":
        return [
            Entry(f"{title}, paper's 15 stages", method, _has_paper_stages, main=False),
            Entry(title, method, lambda setting: not _has_paper_stages(setting)),
        ]
    return [Entry(title, method)]


# Each setting of a method belongs to exactly one of its rows. CHITA's single stage is chita-bso.
ENTRIES = tuple(
    entry
    for method, title in paper.NAMES.items()
    if method != "chita-cd"
    for entry in _entries_of(method, title)
)
METHODS = tuple(dict.fromkeys(entry.method for entry in ENTRIES))
