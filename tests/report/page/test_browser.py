"""The page in a real browser: what is seen, what answers, and that nothing is fetched."""

from __future__ import annotations

import itertools
import re
from typing import Any

import pytest

from tests.report.page.browser import BROWSER_MARKS, Open, unfold
from tests.report.page.folders import EVIL, KINDS

pytestmark = BROWSER_MARKS

READOUT = ".readout:not(:empty)"


@pytest.mark.parametrize("name", KINDS)
def test_every_chart_is_drawn_and_has_its_figures_as_text(open_page: Open, name: str) -> None:
    page = open_page(name)
    assert page.locator("figure.headline").count() == 1
    unfold(page)
    figures = page.locator("figure:not(.mask)")
    for place in range(figures.count()):
        figure = figures.nth(place)
        if figure.locator(".plot").count():
            assert figure.locator("svg path").count() >= 1
            assert figure.locator("tbody tr").count() >= 1
        else:
            assert figure.locator(".bars li").count() >= 1
            assert figure.locator(".bars .ink").count() == figure.locator(".bars li").count()
    shown = page.locator("body").inner_text()
    assert not re.search(r"undefined|NaN|\[object", shown)


@pytest.mark.parametrize("name", KINDS)
def test_details_are_folded_and_open_by_the_keyboard(open_page: Open, name: str) -> None:
    page = open_page(name)
    folds = page.locator("#details > details")
    assert folds.count() >= 1
    assert page.locator("details[open]").count() == 0
    last = folds.last
    last.locator("summary").focus()
    page.keyboard.press("Enter")
    last.locator("table").wait_for()


def test_a_hostile_name_is_text(open_page: Open) -> None:
    page = open_page("prune")
    assert page.get_by_text(EVIL).first.is_visible()


def test_the_mouse_shows_the_figures_of_a_point(open_page: Open) -> None:
    page = open_page("bench")
    figure = page.locator("figure").first
    assert figure.locator(READOUT).count() == 0
    marks = figure.locator(".series").nth(1).locator("path[transform]")
    marks.nth(1).hover(force=True)
    said = figure.locator(READOUT).inner_text()
    assert said.splitlines() == [
        "CHITA++", "sparsity 98.00 %", "test accuracy 92.25 % ± 0.50 %",
    ]  # fmt: skip
    page.mouse.move(0, 0)
    assert figure.locator(READOUT).count() == 0


def test_keys_move_through_points_and_are_announced(open_page: Open) -> None:
    page = open_page("bench")
    figure = page.locator("figure").first
    chart = figure.get_by_role("application")
    for _ in range(50):
        page.keyboard.press("Tab")
        if chart.evaluate("element => element === document.activeElement"):
            break
    readout = figure.get_by_role("status")
    keys = ("", "ArrowRight", "ArrowRight", "ArrowDown", "Home", "ArrowUp", "End", "Escape")
    said = []
    for key in keys:
        if key:
            page.keyboard.press(key)
        said.append(readout.inner_text().split("\n")[:2])
    low, high = "sparsity 90.00 %", "sparsity 98.00 %"
    assert said == [
        ["MP", low], ["MP", high], ["MP", high], ["CHITA++", high], ["CHITA++", low], ["MP", low],
        ["MP", high], [""],
    ]  # fmt: skip


def open_masks(page: Any) -> Any:
    """Open the fold of the masks, and return the first picture."""
    page.locator(".fold > summary", has_text="Masks").click()
    page.wait_for_selector(".mask canvas")
    return page.locator(".mask").first


def test_masks_answer_to_keys(open_page: Open) -> None:
    page = open_page("gradual")
    mask = open_masks(page)
    mask.get_by_role("application").focus()
    said = []
    for key in ("Home", "ArrowRight", "ArrowDown"):
        page.keyboard.press(key)
        said.append(mask.locator(READOUT).inner_text().split("\n"))
    assert said == [
        ["output 0", "input 0", "kept"],
        ["output 0", "input 1", "pruned"],
        ["output 1", "input 1", "kept"],
    ]
    assert mask.locator(".cell").is_visible()


def test_bars_are_a_list_that_screen_readers_can_read(open_page: Open) -> None:
    page = open_page("gradual")
    bars = page.get_by_role("list", name="Share of each layer that is kept")
    assert bars.get_by_role("listitem").all_inner_texts() == ["weight\n25.00 %, 4 of 16"]
    ink = bars.locator(".ink").bounding_box()["width"]
    assert ink == pytest.approx(bars.locator(".track").bounding_box()["width"] / 4, abs=1)


def test_a_curve_can_be_put_away(open_page: Open) -> None:
    page = open_page("bench")
    figure = page.locator("figure").first
    before = figure.locator(".series").count()
    button = figure.get_by_role("button", name="MP", exact=True)
    button.click()
    assert button.get_attribute("aria-pressed") == "false"
    assert figure.locator(".series").count() == before - 1
    button.click()
    assert figure.locator(".series").count() == before


def test_a_mask_is_painted_as_it_is(open_page: Open) -> None:
    page = open_page("gradual")
    open_masks(page)
    painted = page.locator(".mask canvas").evaluate(
        "c => Array.from(c.getContext('2d').getImageData(0, 0, 4, 4).data)"
    )
    assert painted[3::4] == [255 if row == column else 0 for row in range(4) for column in range(4)]


def test_paper_is_light_and_shows_what_is_open(open_page: Open) -> None:
    page = open_page("recovery", color_scheme="dark")
    page.emulate_media(media="print", color_scheme="dark")
    ground = "getComputedStyle(document.documentElement).getPropertyValue('--ground')"
    assert (
        luminance([int(page.evaluate(ground).strip()[at : at + 2], 16) / 255 for at in (1, 3, 5)])
        > 0.8
    )
    assert not page.locator("#details").is_visible()
    assert page.locator("figure.headline svg").first.is_visible()


CONTRAST = """
() => {
  const style = getComputedStyle(document.documentElement);
  const of = (name) => {
    const hex = style.getPropertyValue(name).trim();
    return [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16) / 255);
  };
  const colours = Array.from({ length: 12 }, (_, place) => `--c${place}`);
  const all = ["--ground", "--card", "--ink", "--soft", "--link", ...colours];
  return Object.fromEntries(all.map((name) => [name, of(name)]));
}
"""


def luminance(rgb: list[float]) -> float:
    """The relative luminance of WCAG 2."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in rgb]
    return sum(w * c for w, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colours_pass_wcag_aa(open_page: Open, scheme: str) -> None:
    page = open_page("prune", color_scheme=scheme)
    colours = page.evaluate(CONTRAST)
    light = {name: luminance(rgb) for name, rgb in colours.items()}
    assert (light["--ground"] < 0.1) == (scheme == "dark")

    def contrast(a: str, b: str) -> float:
        high, low = max(light[a], light[b]), min(light[a], light[b])
        return (high + 0.05) / (low + 0.05)

    for text, ground in itertools.product(("--ink", "--soft", "--link"), ("--ground", "--card")):
        assert contrast(text, ground) >= 4.5, (text, ground)
    for place in range(12):
        assert contrast(f"--c{place}", "--card") >= 3, place


def test_masks_are_repainted_when_the_scheme_changes(open_page: Open) -> None:
    page = open_page("gradual", color_scheme="light")
    open_masks(page)
    light = page.locator(".mask canvas").evaluate("canvas => canvas.toDataURL()")
    page.emulate_media(color_scheme="dark")
    page.wait_for_function(
        "(before) => document.querySelector('.mask canvas').toDataURL() !== before", arg=light
    )
