"""A real browser for tests of the page: the marks of such tests, and how to open all folds."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any

import pytest

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
BROWSER_MARKS = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on this machine"),
]
Open = Callable[..., Any]

# A function, not an expression: the policy of the page forbids to evaluate text.
UNFOLD = """
() => {
  const details = [...document.querySelectorAll("details")];
  for (const one of details) one.open = true;
  return details.every((one) => one.children.length > 1)
    && [...document.querySelectorAll(".plot")].every((one) => one.querySelector("svg, canvas"));
}
"""


def unfold(page: Any) -> None:
    """Open the folds and the details in them, and wait until their contents are drawn."""
    page.wait_for_function(UNFOLD)
