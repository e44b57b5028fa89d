import io
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

from chita import ChitaError
from chita.data.decode import SUFFIXES, decode, require_pillow
from tests.data.pictures import Image, noise, save, save_bomb
from tests.support.messages import naming


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_every_format(suffix: str, tmp_path: Path) -> None:
    image = decode(str(save(tmp_path / f"x{suffix}", size=(30, 20))))
    assert image.dtype == torch.uint8
    assert image.shape == (3, 20, 30)
    difference = image.float() - noise(20, 30).permute(2, 0, 1).float()
    lossless = suffix in (".png", ".bmp", ".ppm", ".tif", ".tiff")
    assert difference.abs().mean() < (1e-9 if lossless else 8)


@pytest.mark.parametrize(
    ("name", "mode"),
    [("x.jpg", "L"), ("x.jpg", "CMYK"), ("x.png", "RGBA"), ("x.png", "P"), ("x.png", "LA"),
     ("x.png", "1"), ("x.tif", "CMYK"), ("x.tif", "LAB")],
)  # fmt: skip
def test_every_mode_becomes_rgb(name: str, mode: str, tmp_path: Path) -> None:
    path = save(tmp_path / name, size=(30, 20), mode=mode)
    with Image.open(path) as picture:
        assert picture.mode == mode
        expected = np.array(picture.convert("RGB"))
    assert torch.equal(decode(str(path)), torch.from_numpy(expected).permute(2, 0, 1))


def test_transparent_palette_is_no_reason_to_warn(tmp_path: Path) -> None:
    picture = Image.fromarray(noise(8, 8).numpy()).convert("P")
    picture.save(tmp_path / "x.png", transparency=bytes(range(256)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert decode(str(tmp_path / "x.png")).shape == (3, 8, 8)


def test_sixteen_bits_are_scaled_not_clipped(tmp_path: Path) -> None:
    grey = np.array([[0, 255, 256], [32768, 65280, 65535]], dtype=np.uint16)
    Image.fromarray(grey).save(tmp_path / "x.png")
    expected = torch.tensor([[0, 0, 1], [128, 255, 255]], dtype=torch.uint8)
    assert torch.equal(decode(str(tmp_path / "x.png")), expected.expand(3, 2, 3))


def test_a_suffix_may_lie_about_the_format(tmp_path: Path) -> None:
    """ImageNet has a PNG file called .JPEG."""
    save(tmp_path / "x.png").rename(tmp_path / "x.jpg")
    assert decode(str(tmp_path / "x.jpg")).shape == (3, 10, 12)


@pytest.mark.parametrize("suffix", [".jpg", ".png", ".webp", ".bmp", ".tif"])
def test_truncated(suffix: str, tmp_path: Path) -> None:
    path = save(tmp_path / f"x{suffix}", size=(60, 50))
    content = path.read_bytes()
    path.write_bytes(content[: len(content) * 2 // 3])
    with pytest.raises(Exception):  # noqa: B017 - of any type, as is promised
        decode(str(path))


@pytest.mark.parametrize("content", [b"", b"no picture", b"\xff\xd8\xff", b"\x00" * 100])
def test_no_picture(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "x.jpg").write_bytes(content)
    with pytest.raises(Image.UnidentifiedImageError):
        decode(str(tmp_path / "x.jpg"))


@pytest.mark.parametrize("side", [10_000, 60_000])
def test_bombs_are_refused_before_they_are_decoded(side: int, tmp_path: Path) -> None:
    """Pillow only warns of the smaller one."""
    with pytest.raises((Image.DecompressionBombWarning, Image.DecompressionBombError)):
        decode(str(save_bomb(tmp_path / "x.png", side=side)))


def test_formats_that_run_programs_are_not_tried(tmp_path: Path) -> None:
    content = io.BytesIO()
    Image.fromarray(noise(8, 8).numpy()).save(content, "EPS")
    (tmp_path / "x.jpg").write_bytes(content.getvalue())
    with pytest.raises(Image.UnidentifiedImageError):
        decode(str(tmp_path / "x.jpg"))


def test_pillow_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    require_pillow("pictures")
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(ChitaError, match=naming("pictures", "pip install 'chita[images]'")):
        require_pillow("pictures")
