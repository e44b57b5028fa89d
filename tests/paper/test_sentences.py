"""`chita bench sentences`: the encoder, its batches and figures, and the report."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from chita.errors import ChitaError
from chita.paper.benchmark import Bench, run_benchmark
from chita.paper.sentence_encoders import (
    MOST_TOKENS,
    EncoderSubject,
    SentenceEncoder,
    minilm,
    sentence_batches,
    similarities,
    small,
)
from chita.paper.sentences import SPARSITIES, SentenceBench, contenders
from chita.paper.sentences_layout import sentence_rows, sentence_text
from tests.paper.small import read_csv
from tests.support.messages import naming
from tests.support.pruning import numbers

pytest.importorskip("transformers")

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> EncoderSubject:
    return small(None, CPU, tmp_path_factory.mktemp("encoder"))


def as_bytes(text: str) -> list[int]:
    return list(text.encode())


def test_an_embedding_is_the_normalised_mean_without_padding(encoder: EncoderSubject) -> None:
    model = encoder.build()
    assert isinstance(model, SentenceEncoder)
    ids = torch.randint(1, 256, (3, 9), generator=torch.Generator().manual_seed(0))
    lengths = (9, 4, 1)
    mask = (torch.arange(9) < torch.tensor(lengths)[:, None]).long()
    with torch.no_grad():
        found = model(ids, mask)
        for row, length in enumerate(lengths):
            mean = model.body(ids[row : row + 1, :length]).last_hidden_state[0].mean(0)
            torch.testing.assert_close(found[row], mean / mean.norm(), rtol=1e-4, atol=1e-5)


def test_batches_contain_every_sentence_once_with_a_mask_of_its_tokens() -> None:
    texts = ["x" * length for length in (*range(1, 130, 3), 500)]
    batches = sentence_batches(texts, as_bytes, seed=0)
    lengths = torch.cat([batch["attention_mask"].sum(1) for batch in batches]).sort().values
    assert lengths.tolist() == sorted(min(len(text), MOST_TOKENS) for text in texts)
    for batch in batches:
        ids, mask = batch["input_ids"], batch["attention_mask"]
        assert ids.shape[1] % 32 == 0 and ids.shape[1] - int(mask.sum(1).min()) < 32
        assert torch.equal(ids == ord("x"), mask == 1)


def test_a_long_sentence_keeps_its_last_token() -> None:
    (batch,) = sentence_batches(["a" * 300 + "z"], as_bytes, seed=0)
    assert batch["input_ids"].tolist() == [[ord("a")] * (MOST_TOKENS - 1) + [ord("z")]]


def test_seeds_choose_other_sentences(encoder: EncoderSubject) -> None:
    model = encoder.build()
    one, same, other = (encoder.calibration(model, seed) for seed in (0, 0, 1))
    assert sum(len(batch["input_ids"]) for batch in one) == 200
    for a, b in zip(one, same, strict=True):
        assert torch.equal(a["input_ids"], b["input_ids"])
    assert any(a["input_ids"].shape != b["input_ids"].shape or (a["input_ids"] != b["input_ids"])
               .any() for a, b in zip(one, other, strict=True))  # fmt: skip


def test_similarities_are_those_of_all_pairs() -> None:
    vectors = numbers(5, 3)
    expected = [float(vectors[i] @ vectors[j]) for i in range(5) for j in range(i + 1, 5)]
    assert similarities(vectors).tolist() == pytest.approx(expected)


def test_figures_are_one_for_the_dense_encoder_only(encoder: EncoderSubject) -> None:
    model = encoder.build()
    dense = encoder.measure(model)
    assert dense["cosine"] == pytest.approx(1) and dense["rank_correlation"] == pytest.approx(1)
    assert dense["cosine_error"] == pytest.approx(0, abs=1e-7) and dense["sentences"] == 200
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    moved = encoder.measure(model)
    assert moved["cosine"] < 0.999 and moved["rank_correlation"] < 0.999
    assert moved["cosine_error"] > 0
    assert encoder.measure(encoder.build()) == dense


def test_the_cosine_is_that_of_torch(encoder: EncoderSubject) -> None:
    class Turned(nn.Module):
        """The embeddings with the sign of their first entry changed."""

        def __init__(self) -> None:
            super().__init__()
            self.inner = copy.deepcopy(encoder.build())

        def forward(self, **given: Any) -> torch.Tensor:
            found: torch.Tensor = self.inner(**given)
            return torch.cat([-found[:, :1], found[:, 1:]], 1)

    turned, dense = Turned(), encoder.build()
    batches = encoder._test
    with torch.no_grad():
        pairs = [(dense(**batch), turned(**batch)) for batch in batches]
    cosines = torch.cat([torch.cosine_similarity(a, b) for a, b in pairs])
    found = encoder.measure(turned)
    assert found["cosine"] == pytest.approx(float(cosines.mean()), abs=1e-5)
    assert found["cosine_error"] == pytest.approx(float(cosines.std()) / 200**0.5, rel=1e-3)


def test_cells_are_reported(tmp_path: Path) -> None:
    methods = {name: contenders(4)[name] for name in ("magnitude", "Wanda", "magnitude, recovery")}
    benchmark = SentenceBench((small,), (0.5, "2:4"), methods)
    run_benchmark("sentences", benchmark, Bench({}, 1, folder=tmp_path), tmp_path)
    rows = read_csv(tmp_path / "sentences.csv")
    assert [row["method"] for row in rows] == [name for name in methods for _ in range(2)]
    assert all(0 < float(row["cosine"]) < 1 for row in rows)
    cosine = {row["method"]: float(row["cosine"]) for row in rows if row["sparsity"] == "0.5"}
    assert cosine["magnitude, recovery"] > cosine["magnitude"]
    assert "| method | 0.5 | 2:4 |" in (tmp_path / "sentences.md").read_text()


def test_all_methods_with_recovery_take_as_many_steps() -> None:
    given = contenders(30)
    assert SPARSITIES == (0.5, 0.7, "2:4")
    assert {"magnitude", "Wanda", "SparseGPT", "ALPS", "CHITA, layer-wise"} <= {*given}
    assert {each["loss"] for each in given.values()} == {"distill"}
    trained = {name for name, each in given.items() if each.get("recover")}
    assert trained == {
        "auto", "magnitude, recovery", "Wanda, recovery", "CHITA, layer-wise, recovery"
    }  # fmt: skip
    assert {given[name]["budget"] for name in trained} == {"30 steps"}


def record(method: str, cosine: float, seed: int = 0) -> dict[str, Any]:
    key = {"network": "net", "method": method, "sparsity": 0.5, "seed": seed}
    return {"key": key, "cosine": cosine, "cosine_error": 0.002, "rank_correlation": cosine - 0.1,
            "sentences": 100, "seconds": 1.0}  # fmt: skip


def test_the_best_with_and_without_training_are_in_bold() -> None:
    rows = sentence_rows(
        [
            record("dense", 1.0),
            record("Wanda", 0.8),
            record("magnitude", 0.5),
            record("magnitude", 0.7, 1),
            record("magnitude, recovery", 0.85),
            record("auto", 0.9),
        ]
    )
    assert [row["method"] for row in rows] == ["Wanda", "magnitude", "magnitude, recovery", "auto"]
    assert rows[1]["cosine"] == pytest.approx(0.6) and rows[1]["seeds"] == 2
    text = sentence_text(rows)
    assert "**0.8000** (0.0020)" in text and "**0.9000** (0.0020)" in text
    assert "| 0.5000 (0.1000) |" in text and "| 0.8500 (0.0020) |" in text


def test_missing_texts_are_named(tmp_path: Path) -> None:
    with pytest.raises(ChitaError, match=naming("--texts", "wiki.test.raw", "valid.txt")):
        minilm(tmp_path, CPU, tmp_path)
