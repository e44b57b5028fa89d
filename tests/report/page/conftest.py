"""Pages of every kind of folder, opened in a browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chita.report.page.render import write_page
from tests.report.page.browser import CHROMIUM, Open
from tests.report.page.folders import KINDS


@pytest.fixture(scope="package")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    for name, write in KINDS.items():
        write(folder / name)
    return {name: write_page(folder / name) for name in KINDS}


@pytest.fixture(scope="package")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
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
