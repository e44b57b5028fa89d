"""Folders of Hugging Face in and out: precision, ties, tokenizer, and what is wrong in them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from chita.errors import ChitaError
from chita.files.checkpoint import load_checkpoint
from chita.files.packed.load import load
from chita.files.packed.write import save
from chita.references.huggingface_files import load_tokenizer
from chita.references.resolve import resolve_network
from tests.support.language import content, write_gpt2, write_llama
from tests.support.messages import naming

transformers = pytest.importorskip("transformers")


def save_halved(source: Path, target: Path) -> Any:
    """Write the model of a folder with half of its weights set to zero."""
    network = resolve_network(f"hf:{source}", {})
    assert network.build_trained is not None and network.save is not None
    model = network.build_trained()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "layers" in name or ".h." in name:
                parameter.view(-1)[::2] = 0.0
    target.mkdir()
    network.save(model, target)
    return model


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_folder_comes_out_as_it_went_in(tmp_path: Path, dtype: torch.dtype) -> None:
    source = write_llama(tmp_path / "in", dtype=dtype, tie_word_embeddings=True, use_cache=True)
    before = content(source)
    model = save_halved(source, tmp_path / "out")
    assert model.dtype == torch.float32  # training needs it
    assert content(source) == before
    stored = load_file(tmp_path / "out" / "model.safetensors")
    assert {tensor.dtype for tensor in stored.values()} == {dtype}
    assert stored.keys() == load_file(source / "model.safetensors").keys()
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        assert (tmp_path / "out" / name).read_bytes() == before[name]
    again = transformers.LlamaForCausalLM.from_pretrained(tmp_path / "out")
    assert again.dtype == dtype and again.config.use_cache is True
    assert again.lm_head.weight is again.model.embed_tokens.weight
    for name, parameter in model.named_parameters():
        assert torch.equal(again.get_parameter(name), parameter.to(dtype))
    zeros = again.model.layers[0].mlp.up_proj.weight == 0
    again.save_pretrained(tmp_path / "later")
    later = load_file(tmp_path / "later" / "model.safetensors")
    assert torch.equal(later["model.layers.0.mlp.up_proj.weight"] == 0, zeros)
    assert float(zeros.float().mean()) == pytest.approx(0.5)


def test_a_precision_of_the_user_is_kept(tmp_path: Path) -> None:
    source = write_llama(tmp_path / "in", dtype=torch.bfloat16)
    network = resolve_network(f"hf:{source}", {"dtype": torch.bfloat16})
    assert next(network.build().parameters()).dtype == torch.bfloat16


def test_weights_that_a_file_has_under_one_name_fill_both(tmp_path: Path) -> None:
    source = write_gpt2(tmp_path / "in")
    pruned = save_halved(source, tmp_path / "out")
    stored = load_file(tmp_path / "out" / "model.safetensors")
    assert "lm_head.weight" not in stored
    save(stored, tmp_path / "packed.safetensors")
    for number in range(2):
        model = resolve_network(f"hf:{source}", {}).build()
        with torch.no_grad():
            model.get_parameter("transformer.wte.weight").zero_()
        if number:
            load(tmp_path / "packed.safetensors", into=model)
        else:
            load_checkpoint(model, tmp_path / "out" / "model.safetensors")
        for name, parameter in pruned.named_parameters():
            assert torch.equal(model.get_parameter(name), parameter)
    incomplete = {name: x for name, x in stored.items() if name != "transformer.wte.weight"}
    save(incomplete, tmp_path / "packed.safetensors")
    with pytest.raises(ChitaError, match=naming("lm_head.weight", "transformer.wte.weight")):
        load_checkpoint(model, tmp_path / "packed.safetensors")


def test_a_tokenizer_of_a_folder(tmp_path: Path) -> None:
    source = write_llama(tmp_path / "in")
    ids = load_tokenizer(source)("grün\n" * 100)
    assert len(ids) == 600 and max(ids) < 256 and ids[:6] == ids[6:12]
    (source / "tokenizer.json").write_text("{")
    with pytest.raises(ChitaError, match=naming(str(source), "tokenizer")):
        load_tokenizer(source)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (source / name).unlink()
    with pytest.raises(ChitaError, match=naming(str(source), "tokenizer.json")):
        load_tokenizer(source)


def test_a_folder_must_have_a_config_or_one_gguf(tmp_path: Path) -> None:
    for text in (f"hf:{tmp_path}", str(tmp_path)):
        with pytest.raises(ChitaError, match=naming(str(tmp_path), "config.json", "GGUF")):
            resolve_network(text, {})
    for name in ("a.gguf", "b.gguf"):
        (tmp_path / name).touch()
    with pytest.raises(ChitaError, match=naming(str(tmp_path), "config.json", 2)):
        resolve_network(str(tmp_path), {})
