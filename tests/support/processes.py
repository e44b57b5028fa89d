"""Processes that are quick to start."""

from __future__ import annotations

import multiprocessing
from typing import Any


def quick_context() -> Any:
    """The context of real processes that are forked from a server which has chita loaded already.

    Where there is no such server, they start afresh.
    """
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["chita.cli.app", "matplotlib.figure", "torch.distributed"])
    return context
