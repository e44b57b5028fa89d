"""The CPUs that this process may use: its affinity mask, and the quota of its control group."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path

_CONTROL_GROUPS = Path("sys/fs/cgroup")


def available_cpus() -> int:
    """Return how many CPUs this process may keep busy, at least 1."""
    quota = cpu_quota()
    cpus = _affine_cpus()
    return cpus if quota is None else max(1, min(cpus, math.ceil(quota)))


def _affine_cpus() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def cpu_quota(root: Path = Path("/")) -> float | None:
    """Return the CPU time for each second that the control groups allow; None without a limit.

    A limit of a group applies to all groups in it, so the smallest one counts. In a container, the
    paths may be those of its host; then only the groups that exist in the container are read.

    Args:
        root: the folder of proc and sys.
    """
    limits = [limit for folder in _groups(root) if (limit := _limit(folder)) is not None]
    return min(limits, default=None)


def _groups(root: Path) -> Iterator[Path]:
    """Yield the folders of this process's groups and of those around them, versions 1 and 2."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:  # not Linux
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        mounts = (controllers, "cpu") if controllers else ("", "unified")
        names = [name for name in path.split("/") if name not in ("", "..")]
        for mount in dict.fromkeys(mounts):
            for depth in range(len(names) + 1):
                yield (root / _CONTROL_GROUPS / mount).joinpath(*names[:depth])


def _limit(folder: Path) -> float | None:
    """Return the limit of one group: cpu.max of version 2, or the two files of version 1."""
    try:
        if (folder / "cpu.max").exists():
            quota, period = (folder / "cpu.max").read_text().split()
        else:
            quota, period = (
                (folder / f"cpu.cfs_{name}_us").read_text().strip() for name in ("quota", "period")
            )
        limited = quota not in ("max", "-1")
        return int(quota) / int(period) if limited else None
    except (OSError, ValueError, ZeroDivisionError):
        return None
