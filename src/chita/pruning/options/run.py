"""The options of `chita.prune` on the seed, memory and ranks of a run."""

from __future__ import annotations

from dataclasses import dataclass

from chita.errors import is_bool, is_seed
from chita.pruning.options.declaration import must_be, one_of, option
from chita.pruning.options.text import read_text
from chita.solver.matrix.memory import parse_bytes

STORAGE = ("float32", "bfloat16", "float16")


@dataclass(frozen=True)
class RunOptions:
    """The options on the seed, memory, ranks and progress of a run."""

    seed: int = option(
        0,
        "Random seed.",
        must_be(is_seed, "an integer from 0 to 2**64 - 1"),
        panel="Data",
        details="It determines the order in which batches given as a list are read, and the "
        "starting points of CBS.",
        least=0,
    )
    memory: int | str | None = option(
        None,
        "Most memory that the process may use, such as 8GB; on a GPU, memory of the GPU. By "
        "default there is no limit.",
        parse_bytes,
        panel="Resources",
        details="With a limit, A is kept in memory, written to a temporary file (in TMPDIR) or "
        "computed in several passes, the fastest that fits; results are equal up to rounding. "
        "Methods that prune block by block treat the outputs of blocks in the same way.",
        read=read_text,
    )
    storage: str = option(
        "float32",
        f"Number format in which A is stored: {', '.join(STORAGE)}.",
        one_of(STORAGE),
        panel="Resources",
        details="Products use full precision; 'float32' stores A of a float64 model in float64.",
    )
    sync: bool = option(
        False,
        "On several ranks, take the parameters, buffers and held-out samples of rank 0. By "
        "default, ranks that differ in them are an error.",
        must_be(is_bool, "True or False"),
        panel="Resources",
        details="After training with DistributedDataParallel, the statistics of batch norm differ.",
    )
