"""Runs a function on several gloo ranks, over loopback."""

from __future__ import annotations

import faulthandler
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from tests.support.processes import quick_context

TIME = 300  # seconds a test may take on a busy machine; a hang is a failure


def on_ranks(size: int, work: Callable[..., Any], *args: Any) -> list[Any]:
    """What work(rank, *args) returns, or the exception it raises, on each of `size` ranks.

    A rank that ended without either gives its exit code. `work` must be importable.
    """
    context = quick_context()
    with tempfile.TemporaryDirectory() as folder:
        processes = [
            context.Process(target=_run, args=(rank, size, folder, work, args))
            for rank in range(size)
        ]
        for process in processes:
            process.start()
        for process in processes:
            process.join(TIME)
        hung = [process for process in processes if process.is_alive()]
        for process in hung:
            process.kill()
        assert not hung, f"{len(hung)} ranks hang"
        # Exceptions are among the outcomes; the files were written right here.
        return [
            torch.load(file, weights_only=False) if file.exists() else process.exitcode
            for file, process in zip(_files(folder, size), processes, strict=True)
        ]


def _files(folder: str, size: int) -> list[Path]:
    return [Path(folder) / f"{rank}.pt" for rank in range(size)]


def _run(
    rank: int, size: int, folder: str, work: Callable[..., Any], args: tuple[Any, ...]
) -> None:
    torch.set_num_threads(1)
    faulthandler.dump_traceback_later(TIME - 10)  # where it hangs, if it does
    dist.init_process_group("gloo", f"file://{folder}/rendezvous", rank=rank, world_size=size)
    try:
        outcome = work(rank, *args)
    except Exception as error:
        outcome = error.with_traceback(None)
    torch.save(outcome, _files(folder, size)[rank])
    dist.destroy_process_group()
