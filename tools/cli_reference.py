"""Write the reference of the command line while mkdocs builds the documentation.

mkdocs calls this file as a hook (see `mkdocs.yml`). It replaces the line `<!-- commands -->` of the
page `reference/cli.md` by the help texts of every command, which typer renders as Markdown.
"""

from __future__ import annotations

import re
import subprocess
import sys
from typing import Any

PAGE = "reference/cli.md"
PLACE = "<!-- commands -->"


def render() -> str:
    """Return the help of `chita` and of all its commands as Markdown."""
    command = [sys.executable, "-m", "typer", "chita.cli.app", "utils", "docs", "--name", "chita"]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    # The page has its own title, and its table of contents lists the commands in full.
    text = text.removeprefix("# `chita`\n")
    return re.sub(r"\*\*Commands\*\*:\n\n(\* .*\n)+\n", "", text, count=1)


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Return the text of a page, with the commands in the page that asks for them."""
    return markdown.replace(PLACE, render()) if page.file.src_uri == PAGE else markdown
