"""The command `chita demo`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from chita.cli.launch import Output
from chita.cli.shared_options import Overwrite, out_folder
from chita.cli.threads import Threads
from chita.files.run_folder import DEMO_FILES, PAGE_FILE, RESULT_FILES, start_run
from chita.paper.demo import run_demo
from chita.solver.ranks import ALONE


def demo_command(
    out: Annotated[Path, out_folder("Folder for the results.")] = Path("runs/demo"),
    overwrite: Overwrite = False,
    threads: Threads = None,
) -> None:
    """Compare magnitude, CHITA and CHITA++ on the embedded MLPNet."""
    names = (*RESULT_FILES, *DEMO_FILES, PAGE_FILE)
    with Output(out, names, [], overwrite).opened(ALONE):
        start_run(out)
        run_demo(out)
