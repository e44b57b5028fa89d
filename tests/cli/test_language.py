"""Language models on the command line: a folder and a text in, a folder out, and perplexity."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from safetensors.torch import load_file, save_file

from chita.errors import ChitaError
from tests.support.command import invoke
from tests.support.language import CONTEXT, content, write_gpt2, write_llama, write_text
from tests.support.messages import naming

transformers = pytest.importorskip("transformers")

QUICK = ("--method", "chita-bso", "--sparsity", 0.5, "--sequences", 24, "--context", CONTEXT)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_text(Path("a.txt"))
    write_text(Path("b.txt"), words=200, seed=1)
    return tmp_path


def record(*arguments: object) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(invoke(*arguments, "--json").splitlines()[-1])
    return found


def perplexity(source: object, *arguments: object) -> dict[str, Any]:
    return record("perplexity", source, "--text", "b.txt", "--context", CONTEXT, *arguments)


@pytest.mark.parametrize("write", [write_llama, write_gpt2])
def test_a_folder_and_a_text_give_a_folder(write: Any) -> None:
    source = write(Path("model"))
    before = content(source)
    found = record("prune", "model", "--text", "a.txt", *QUICK, "--out", "pruned",
                   "--test", "text:b.txt")  # fmt: skip
    assert content(source) == before
    assert (found["data"], found["sequences"]) == ("text:a.txt", 24)
    assert 12 < found["samples"] <= 24  # a row for each sequence that is not held out
    masks = load_file("pruned/masks.safetensors")
    model = transformers.AutoModelForCausalLM.from_pretrained("pruned")
    for name, mask in masks.items():
        assert torch.equal(model.get_parameter(name) != 0, mask)
    assert sum(int(mask.sum()) for mask in masks.values()) == found["nonzeros"]
    assert model.get_output_embeddings().weight is model.get_input_embeddings().weight
    assert bool((model.get_input_embeddings().weight != 0).all())
    tokens = transformers.AutoTokenizer.from_pretrained("pruned")("over the river")["input_ids"]
    assert len(tokens) == len("over the river")
    dense, pruned = perplexity("model"), perplexity("pruned")
    assert math.log(dense["perplexity"]) == pytest.approx(found["dense_test_loss"], rel=1e-5)
    assert math.log(pruned["perplexity"]) == pytest.approx(found["test_loss"], rel=1e-4)
    assert perplexity("hf:pruned")["loss"] == pruned["loss"]
    (Path("model")).rename("moved")  # the result needs nothing else
    assert perplexity("pruned")["loss"] == pruned["loss"]


def test_the_other_commands_take_the_folder_of_the_run() -> None:
    write_llama(Path("model"))
    record("prune", "hf:model", "--data", "text:a.txt", *QUICK, "--out", "run")
    wanted = perplexity("run")["loss"]
    invoke("pack", "run", "packed.safetensors")
    assert perplexity("packed.safetensors", "--network", "model")["loss"] == wanted
    found = record("recover", "run", "--budget", "3 steps", "--out", "recovered")
    assert found["data"] == "text:a.txt" and found["context"] == CONTEXT
    transformers.AutoModelForCausalLM.from_pretrained("recovered")
    record("recover", "recovered/config.yaml")
    settings = yaml.safe_load(Path("run/config.yaml").read_text())
    assert (settings["context"], settings["sequences"]) == (CONTEXT, 24)
    record("prune", "run/config.yaml", "--out", "again")
    assert (
        Path("again/model.safetensors").read_bytes() == Path("run/model.safetensors").read_bytes()
    )
    record("prune", "run", "--text", "a.txt", *QUICK, "--sparsity", 0.6)  # a pruned folder is one


def test_recover_and_sensitivity_take_a_text() -> None:
    """As --data text:FILE; that of recover replaces the text of the run."""
    write_llama(Path("model"))
    record("prune", "model", "--text", "a.txt", *QUICK, "--method", "magnitude", "--out", "run")
    size = ("--context", 16, "--sequences", 20)
    for command in (
        ("recover", "run", "--budget", "2 steps", *size),
        ("sensitivity", "model", "--samples", 8, *size),
    ):
        found, same = record(*command, "--text", "b.txt"), record(*command, "--data", "text:b.txt")
        assert (found["data"], found["context"], found["sequences"]) == ("text:b.txt", 16, 20)
        varying = {"seconds": None}
        assert {**found, **varying} == {**same, **varying}
        with pytest.raises(ChitaError, match=naming("--data", "--text", "a.txt", "b.txt")):
            invoke(*command, "--text", "b.txt", "--data", "text:a.txt")


def test_perplexity_of_the_first_tokens() -> None:
    write_llama(Path("model"))
    found = perplexity("model", "--tokens", 3 * CONTEXT + 5)
    assert (found["sequences"], found["tokens"]) == (3, 3 * (CONTEXT - 1))
    assert found["perplexity"] == pytest.approx(math.exp(found["loss"]))
    text = invoke("perplexity", "model", "--text", "b.txt", "--context", CONTEXT)
    assert f"perplexity {perplexity('model')['perplexity']:.4g}" in text


@pytest.mark.parametrize("method", ["magnitude", "l-obs"])
def test_weights_that_are_not_finite_are_an_error_of_every_method(method: str) -> None:
    write_llama(Path("model"))
    broken("NaN")
    with pytest.raises(ChitaError, match="finite"):
        invoke("prune", "model", "--text", "a.txt", *QUICK, "--method", method, "--out", "out")
    assert not Path("out/model.safetensors").exists()


def broken(name: str) -> list[object]:
    """The arguments of a run that must fail before it writes anything."""
    text: object = "a.txt"
    if name == "no config":
        Path("model/config.json").unlink()
    elif name == "short text":
        text = write_text(Path("short.txt"), words=2)
    elif name == "not UTF-8":
        text = Path("latin.txt")
        text.write_bytes(b"\xe9" * 4000)
    elif name == "vocabulary":
        write_gpt2(Path("model"), vocabulary=40)
    elif name == "no tokenizer":
        for file in Path("model").glob("tokenizer*"):
            file.unlink()
    elif name == "NaN":
        weights = load_file("model/model.safetensors")
        weights["model.layers.1.mlp.up_proj.weight"][0, 0] = math.nan
        save_file(weights, "model/model.safetensors", {"format": "pt"})
    return ["--text", text]


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("no config", naming("model", "config.json")),
        ("short text", naming("short.txt", CONTEXT)),
        ("not UTF-8", naming("latin.txt", "UTF-8")),
        ("vocabulary", naming("a.txt", 39)),
        ("no tokenizer", naming("model", "tokenizer.json")),
        ("NaN", "finite"),
    ],
)
@pytest.mark.parametrize("command", ["prune", "perplexity"])
def test_bad_input_is_named_and_nothing_is_written(command: str, fault: str, message: str) -> None:
    write_llama(Path("model"))
    given = broken(fault)
    before = content(Path("model"))
    rest = [*QUICK, "--out", "out"] if command == "prune" else ["--context", CONTEXT]
    with pytest.raises(ChitaError, match=message):
        invoke(command, "model", *given, *rest)
    assert content(Path("model")) == before
    assert not Path("out").exists()


def test_the_input_is_never_the_output() -> None:
    write_llama(Path("model"))
    before = content(Path("model"))
    for out in ("model", "model/new"):
        with pytest.raises(ChitaError, match=naming("--out", out)):
            invoke("prune", "model", "--text", "a.txt", *QUICK, "--out", out, "--overwrite")
        assert content(Path("model")) == before and not Path("model/new").exists()


def test_files_of_the_user_in_the_output_are_not_lost() -> None:
    write_llama(Path("model"))
    Path("out").mkdir()
    Path("out/tokenizer.json").write_text("mine")
    quick = ("--text", "a.txt", *QUICK, "--out", "out")
    with pytest.raises(ChitaError, match=naming("tokenizer.json", "--overwrite")):
        invoke("prune", "model", *quick)
    assert [path.name for path in Path("out").iterdir()] == ["tokenizer.json"]
    invoke("prune", "model", *quick, "--overwrite")
    assert Path("out/tokenizer.json").read_bytes() == Path("model/tokenizer.json").read_bytes()
    invoke("prune", "mlpnet", "--method", "magnitude", "--out", "out")  # another network
    assert not Path("out/tokenizer.json").exists() and not Path("out/config.json").exists()


def test_texts_need_a_tokenizer_and_one_option() -> None:
    with pytest.raises(ChitaError, match=naming("--data", "--text")):
        invoke("prune", "mlpnet", "--text", "a.txt", "--data", "mnist-slice")
    with pytest.raises(ChitaError, match=naming("mlpnet", "text:a.txt")):
        invoke("prune", "mlpnet", "--text", "a.txt")
    Path("own.py").write_text("from chita.zoo import MLPNet")
    for network in ("mlpnet", "resnet20", "own.py:MLPNet"):
        message = naming(network, "tokenizer", "--text", "a.txt", "hf:FOLDER", without="--data")
        with pytest.raises(ChitaError, match=message):
            invoke("perplexity", network, "--text", "a.txt")
