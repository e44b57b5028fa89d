"""The option --threads: how many threads torch uses. Only the command line sets them."""

from __future__ import annotations

import os
from typing import Annotated

import torch
import typer

from chita.data.cpus import available_cpus

MOST_THREADS = 1024
_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")


def limit_threads() -> None:
    """Let torch use no more threads than CPUs, unless the environment states a number.

    By default torch counts the CPUs of the machine, and a container may have a part of them.
    """
    if not any(os.environ.get(name) for name in _VARIABLES):
        torch.set_num_threads(min(torch.get_num_threads(), available_cpus()))


def _set_threads(given: int | None) -> int | None:
    if given is not None:
        torch.set_num_threads(given)
    return given


Threads = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=MOST_THREADS,
        callback=_set_threads,
        help="Number of CPU threads; by default OMP_NUM_THREADS, or else one for each CPU that "
        "the process may use.",
    ),
]
