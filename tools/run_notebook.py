"""Execute a notebook in a temporary folder, and store it with its outputs.

    python tools/run_notebook.py examples/prune_a_network.ipynb

The stored file has no times, versions or paths of the machine. Needs nbclient and ipykernel.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}


def execute(path: Path) -> Any:
    """Return the executed notebook; a cell that fails raises an error with its traceback."""
    notebook = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    with tempfile.TemporaryDirectory() as folder:
        place = {"metadata": {"path": folder}}
        NotebookClient(notebook, timeout=600, kernel_name="python3", resources=place).execute()
    notebook.metadata = {"kernelspec": KERNEL, "language_info": {"name": "python"}}
    for cell in notebook.cells:
        cell.metadata = {}  # when it ran, and for how long
        for output in cell.get("outputs", ()):
            if "text/html" in output.get("data", ()):
                output.data.pop("text/plain", None)  # a long repr, which nothing displays
    return notebook


def main(path: Path) -> None:
    nbformat.write(execute(path), path)  # type: ignore[no-untyped-call]
    print(f"{path}: {path.stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
