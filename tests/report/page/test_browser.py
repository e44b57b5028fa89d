"""The page in a real browser: what is seen, what answers, and that nothing is fetched."""

from __future__ import annotations

import itertools
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from chita.report.page.render import write_page
from tests.report.page.folders import EVIL, write_bench, write_gradual, write_prune

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on this machine"),
]
Open = Callable[..., Any]

READOUT = ".readout:not(:empty)"


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    write_prune(folder / "prune")
    write_gradual(folder / "gradual")
    write_bench(folder / "bench")
    return {name: write_page(folder / name) for name in ("prune", "gradual", "bench")}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=CHROMIUM)
        yield started
        started.close()


@pytest.fixture
def open_page(browser: Any, pages: dict[str, Path]) -> Iterator[Open]:
    """Opens a page; at the end there must have been no error and no request but for the file."""
    contexts, faults, asked = [], [], []

    def opened(name: str, width: int = 1200, **settings: Any) -> Any:
        context = browser.new_context(viewport={"width": width, "height": 800}, **settings)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(8000)
        page.on("console", lambda message: faults.append(message.text))
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(pages[name].as_uri())
        page.wait_for_selector(".plot svg")
        return page

    yield opened
    for context in contexts:
        context.close()
    assert faults == []
    own = {page.as_uri() for page in pages.values()}
    assert [url for url in asked if url not in own and url != "data:,"] == []


@pytest.mark.parametrize("name", ["prune", "gradual", "bench"])
def test_every_chart_is_drawn_and_has_its_table(open_page: Open, name: str) -> None:
    page = open_page(name)
    figures = page.locator("figure:not(.mask)")
    assert figures.count() >= 2
    for place in range(figures.count()):
        figure = figures.nth(place)
        assert figure.locator("svg path, svg rect").count() >= 1
        figure.locator("summary").click()
        figure.locator("tbody tr").first.wait_for()
    shown = page.locator("body").inner_text()
    assert not re.search(r"undefined|NaN|\[object", shown)


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
        "CHITA++", "sparsity 98.00%", "test accuracy 92.25 % ± 0.50 %",
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
    low, high = "sparsity 90.00%", "sparsity 98.00%"
    assert said == [
        ["MP", low], ["MP", high], ["MP", high], ["CHITA++", high], ["CHITA++", low], ["MP", low],
        ["MP", high], [""],
    ]  # fmt: skip


def test_bars_and_masks_answer_to_keys(open_page: Open) -> None:
    page = open_page("gradual")
    bars = page.locator("figure", has_text="Seconds of each epoch")
    bars.get_by_role("application").focus()
    page.keyboard.press("End")
    assert bars.locator(READOUT).inner_text().startswith("epoch 4\ntraining 2.50 s")
    mask = page.locator(".mask").first
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
    painted = page.locator(".mask canvas").evaluate(
        "c => Array.from(c.getContext('2d').getImageData(0, 0, 4, 4).data)"
    )
    assert painted[3::4] == [255 if row == column else 0 for row in range(4) for column in range(4)]


@pytest.mark.parametrize("name", ["prune", "gradual", "bench"])
def test_a_phone_need_not_scroll_sideways(open_page: Open, name: str) -> None:
    page = open_page(name, width=360)
    page.evaluate("document.querySelectorAll('details').forEach((one) => (one.open = true))")
    page.wait_for_function("document.querySelectorAll('details:not(:has(table))').length === 0")
    widest = page.evaluate("document.documentElement.scrollWidth")
    assert widest == 360


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
    light = page.locator(".mask canvas").evaluate("canvas => canvas.toDataURL()")
    page.emulate_media(color_scheme="dark")
    page.wait_for_function(
        "before => document.querySelector('.mask canvas').toDataURL() !== before", arg=light
    )
