"""The CPUs that a process may use."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from chita.data import cpus
from chita.data.cpus import available_cpus, cpu_quota


def put(root: Path, files: dict[str, str]) -> Path:
    """Write the files of control groups below a folder."""
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{content}\n")
    return root


def version_1(quota: object, folder: str = "cpu") -> dict[str, str]:
    at = f"sys/fs/cgroup/{folder}"
    return {f"{at}/cpu.cfs_quota_us": f"{quota}", f"{at}/cpu.cfs_period_us": "100000"}


@pytest.mark.parametrize(
    ("group", "files", "quota"),
    [
        ("0::/", {"sys/fs/cgroup/cpu.max": "150000 100000"}, 1.5),
        ("0::/", {"sys/fs/cgroup/cpu.max": "max 100000"}, None),
        ("0::/", {"sys/fs/cgroup/unified/cpu.max": "50000 100000"}, 0.5),
        ("0::/", {}, None),
        ("0::/", {"sys/fs/cgroup/cpu.max": "nonsense"}, None),
        ("0::/", {"sys/fs/cgroup/cpu.max": "100 0"}, None),
        (
            "0::/a/b",
            {"sys/fs/cgroup/a/cpu.max": "200000 100000", "sys/fs/cgroup/a/b/cpu.max": "max 100000"},
            2.0,
        ),
        (
            "0::/a/b",
            {"sys/fs/cgroup/a/cpu.max": "max 1", "sys/fs/cgroup/a/b/cpu.max": "300000 100000"},
            3.0,
        ),
        ("0::/../../host/pod", {"sys/fs/cgroup/cpu.max": "100000 100000"}, 1.0),
        ("4:cpu,cpuacct:/", version_1(250000, "cpu,cpuacct"), 2.5),
        ("4:cpu,cpuacct:/", version_1(250000), 2.5),
        ("4:cpu:/docker/1a2b", version_1(100000), 1.0),
        ("4:cpu:/a", version_1(100000, "cpu/a"), 1.0),
        ("4:cpu:/a", version_1(-1, "cpu/a"), None),
        ("4:cpuset:/a", version_1(100000, "cpuset/a"), None),
        ("4:cpu:/\n0::/", {**version_1(400000), "sys/fs/cgroup/cpu.max": "200000 100000"}, 2.0),
    ],
)
def test_quota(group: str, files: dict[str, str], quota: float | None, tmp_path: Path) -> None:
    assert cpu_quota(put(tmp_path, {"proc/self/cgroup": group, **files})) == quota


def test_without_control_groups(tmp_path: Path) -> None:
    assert cpu_quota(tmp_path) is None


@pytest.mark.parametrize(
    ("mask", "quota", "available"),
    [(8, None, 8), (8, 2.0, 2), (8, 1.5, 2), (8, 0.1, 1), (2, 16.0, 2), (1, None, 1)],
)
def test_available_cpus(
    mask: int, quota: float | None, available: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(mask)), raising=False)
    monkeypatch.setattr(cpus, "cpu_quota", lambda: quota)
    assert available_cpus() == available
