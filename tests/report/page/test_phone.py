"""The page on a phone: nothing is wider than the screen, and no text is cut off."""

import pytest

from tests.report.page.browser import BROWSER_MARKS, Open, unfold
from tests.report.page.folders import KINDS

pytestmark = BROWSER_MARKS

# Elements that stick out of the window or of an ancestor that hides it, and texts that stick out
# of their chart. A wide table may scroll in its own place, which is in a fold.
CUT_OFF = """
() => {
  const cut = [];
  for (const element of document.querySelectorAll("body *:not(.scroll *, svg *, .skip, canvas)")) {
    const { left, right, width } = element.getBoundingClientRect();
    const out = width > 0 && (left < -0.5 || right > innerWidth + 0.5);
    const hides = getComputedStyle(element).overflowX !== "visible" && !element.matches(".scroll");
    if (out || (hides && element.scrollWidth > element.clientWidth + 1)) {
      cut.push(element.outerHTML.slice(0, 80));
    }
  }
  for (const text of document.querySelectorAll(".plot svg text")) {
    const frame = text.ownerSVGElement.getBoundingClientRect();
    const place = text.getBoundingClientRect();
    const wide = place.left < frame.left - 1 || place.right > frame.right + 1;
    if (wide || place.top < frame.top - 1 || place.bottom > frame.bottom + 1) {
      cut.push(text.textContent);
    }
  }
  return cut;
}
"""
OVERFLOW = "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"


@pytest.mark.parametrize("width", [360, 390])
@pytest.mark.parametrize("name", KINDS)
def test_nothing_scrolls_sideways(open_page: Open, name: str, width: int) -> None:
    page = open_page(name, width=width)
    assert page.evaluate(CUT_OFF) == []
    assert page.evaluate(OVERFLOW) == 0
    unfold(page)
    assert page.evaluate(CUT_OFF) == []
    assert page.evaluate(OVERFLOW) == 0


@pytest.mark.parametrize("name", KINDS)
def test_only_tables_in_folds_scroll_by_themselves(open_page: Open, name: str) -> None:
    page = open_page(name, width=360)
    unfold(page)
    outside = (
        "() => [...document.querySelectorAll('.scroll')].filter((one) => !one.closest('details'))"
    )
    assert page.evaluate(outside) == []
