"""`chita bench language`: cells that are computed once, and a report on them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from chita.errors import ChitaError
from chita.paper import small_language
from chita.paper import timed_prune as module
from chita.paper.benchmark import Bench, run_benchmark
from chita.paper.language import CONTENDERS, SPARSITIES, LanguageBench
from chita.paper.language_layout import language_rows, language_text
from chita.paper.language_models import small, smollm, write_text
from chita.paper.method_tables import DENSE
from chita.paper.sentence_encoders import small as small_encoder
from chita.paper.text_bench import Open
from tests.paper.small import read_csv
from tests.support.messages import naming
from tests.support.pruning import seeded

transformers = pytest.importorskip("transformers")

METHODS = {
    "magnitude": CONTENDERS["magnitude"],
    "L-OBS": CONTENDERS["L-OBS"],
    "later": {"method": "not-registered"},
}


def bench(folder: Path, seeds: int = 1) -> Bench:
    return Bench({}, seeds, folder=folder)


def test_registered_methods_are_measured_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[dict[str, Any]] = []

    def counted(model: Any, batches: Any, **keywords: Any) -> Any:
        calls.append({**keywords, "sequences": sum(len(x["input_ids"]) for x in batches)})
        return prune(model, batches, **keywords)

    prune = module.prune
    monkeypatch.setattr(module, "prune", counted)
    benchmark = LanguageBench((small,), (0.5, "2:4"), METHODS)
    for _ in range(2):  # the second run finds its cells
        run_benchmark("language", benchmark, bench(tmp_path), tmp_path)
    assert [(call["method"], call["sparsity"]) for call in calls] == [
        ("magnitude-uniform", 0.5), ("magnitude-uniform", "2:4"), ("l-obs", 0.5), ("l-obs", "2:4"),
    ]  # fmt: skip
    assert {call["sequences"] for call in calls} == {128}
    rows = read_csv(tmp_path / "language.csv")
    assert [row["method"] for row in rows] == [DENSE, *["magnitude"] * 2, *["L-OBS"] * 2]
    assert len({row["perplexity"] for row in rows}) == 5
    cells = [json.loads(line) for line in (tmp_path / "cells.jsonl").read_text().splitlines()]
    assert [round(cell["reached"], 2) for cell in cells] == [0, 0.5, 0.5, 0.5, 0.5]
    text = (tmp_path / "language.md").read_text()
    assert "small-llama" in text and "| method | 0.5 | 2:4 |" in text


def test_the_full_size_is_that_of_the_comparison() -> None:
    assert SPARSITIES == (0.5, 0.6, 0.7, "2:4", "4:8")
    assert {"magnitude", "Wanda", "SparseGPT", "RIA", "ALPS", "auto"} <= {*CONTENDERS}


def record(method: str, perplexity: float, seed: int = 0) -> dict[str, Any]:
    key = {"network": "net", "method": method, "sparsity": 0.5, "seed": seed}
    return {"key": key, "perplexity": perplexity, "tokens": 100, "seconds": 1.0,
            "peak_memory_bytes": 2e9, "reached": 0.5}  # fmt: skip


def test_the_best_with_and_without_training_are_in_bold() -> None:
    rows = language_rows(
        [
            record("magnitude", 90.0),
            record("ALPS", 40.0),
            record("ALPS", 42.0, 1),
            record("auto", 30.0),
        ]
    )
    assert [row["perplexity"] for row in rows] == [90.0, 41.0, 30.0]
    text = language_text(rows)
    assert "**41.00** (1.00)" in text and "**30.00**" in text and "**90.00**" not in text


def test_a_model_without_its_text_is_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cells = LanguageBench((smollm, small), (0.5,), METHODS).cells(bench(tmp_path))
    assert {cell.key["network"] for cell in cells} == {"small-llama"}
    assert "wiki.test.raw" in caplog.text
    with pytest.raises(ChitaError, match=naming("--texts", "wiki.test.raw", "valid.txt")):
        LanguageBench((smollm,), (0.5,), METHODS).cells(bench(tmp_path))


@pytest.mark.parametrize(
    "open_small", [small, small_encoder], ids=["language model", "sentence encoder"]
)
def test_an_interruption_while_the_small_model_is_written_is_mended(
    open_small: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(folder: Path) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(small_language, "write_byte_tokenizer", interrupt)
        with pytest.raises(KeyboardInterrupt):
            open_small(None, torch.device("cpu"), tmp_path).build()
    model = open_small(None, torch.device("cpu"), tmp_path)
    assert model.calibration(model.build(), seed=0)


def test_a_model_writes_the_tokens_that_its_probabilities_give() -> None:
    """With a cache of keys and values, the same tokens are drawn as without one."""
    config = transformers.LlamaConfig(
        vocab_size=20, hidden_size=16, intermediate_size=24, num_hidden_layers=2,
        num_attention_heads=2, max_position_embeddings=9, bos_token_id=3, initializer_range=0.5,
    )  # fmt: skip
    model = seeded(lambda: transformers.LlamaForCausalLM(config)).double()
    one, two = write_text(model, (3, 2), torch.Generator().manual_seed(1))
    assert one.shape == (3, 9) and two.shape == (2, 9)
    written, draw = torch.full((5, 1), 3), torch.Generator().manual_seed(1)
    for _ in range(8):
        with torch.no_grad():
            likely = model(input_ids=written).logits[:, -1].float().softmax(-1)
        written = torch.cat([written, torch.multinomial(likely, 1, generator=draw)], 1)
    assert torch.equal(torch.cat([one, two]), written)
    assert len(set(map(tuple, written.tolist()))) == 5
