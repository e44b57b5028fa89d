"""Fifteen kinds of networks: pruned, saved, loaded in another process and exported.

Each of them by one command and by one call, at a small size.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import chita
from chita.cli.shared_options import read_loss
from chita.files.checkpoint import save_checkpoint
from chita.model.forward import call, evaluating
from chita.model.samples.batch import map_tensors, tensors_of
from chita.zoo.example import example_inputs
from chita.zoo.given_network import find_network
from chita.zoo.trained import open_trained
from tests.support.command import invoke
from tests.support.loading import Loader
from tests.support.timm_models import import_timm

OWN = f"{Path(__file__).parents[1] / 'support' / 'own_networks.py'}:"
SPARSITY = 0.5
BUDGET = "4 steps"


@dataclass(frozen=True)
class Case:
    """A network, its data and its loss, each by reference; "" is a folder that the test makes."""

    network: str
    data: str
    arguments: dict[str, Any] = field(default_factory=dict)
    loss: str | None = None


SMALL = {"num_classes": 10}
CASES = {
    "resnet18": Case("timm:resnet18", "images", {**SMALL, "channels": [8, 8, 16, 16]}),
    "mobilenetv3": Case("timm:mobilenetv3_small_050", "images", SMALL),
    "vit_tiny": Case(
        "timm:vit_tiny_patch16_224",
        "images",
        {**SMALL, "img_size": 32, "embed_dim": 24, "depth": 2},
    ),
    "convnext_atto": Case(
        "timm:convnext_atto", "images", {**SMALL, "depths": [1, 1, 1, 1], "dims": [8, 8, 16, 16]}
    ),
    "BERT": Case("hf:", "sentences"),
    "GPT-2": Case("hf:", "texts"),
    "Llama": Case("hf:", "texts"),
    "sentence encoder": Case("hf:", "unlabelled", loss="distill"),
    "U-Net": Case("UNet", "masks", {"width": 6}),
    "LSTM": Case("Recurrent", "sequences"),
    "TransformerEncoder": Case("Encoder", "sequences"),
    "two inputs": Case("TwoInputs", "pairs", loss="squared_error"),
    "recommender": Case("Recommender", "ratings", loss="Clicks"),
    "weight_norm": Case("weight_norm", "sequences"),
    "compiled": Case("compiled", "sequences"),
}


def transformer(name: str) -> nn.Module:
    transformers = pytest.importorskip("transformers")
    sizes = {"vocab_size": 50, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    sizes = {**sizes, "intermediate_size": 32, "max_position_embeddings": 16}
    model: nn.Module = {
        "BERT": lambda: transformers.BertForSequenceClassification(
            transformers.BertConfig(**sizes, num_labels=2)
        ),
        "GPT-2": lambda: transformers.GPT2LMHeadModel(
            transformers.GPT2Config(vocab_size=50, n_embd=16, n_layer=1, n_head=2, n_positions=16)
        ),
        "Llama": lambda: transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes)),
        "sentence encoder": lambda: transformers.BertModel(
            transformers.BertConfig(**sizes), add_pooling_layer=False
        ),
    }[name]()
    return model


@pytest.fixture(scope="module")
def loader() -> Iterator[Loader]:
    loader = Loader()
    yield loader
    loader.close()


@pytest.fixture
def case(name: str, tmp_path: Path) -> Case:
    """The case with full references."""
    found = CASES[name]
    if found.network.startswith("timm:"):
        import_timm()
        network = found.network
    elif found.network == "hf:":
        transformer(name).save_pretrained(tmp_path / "hf")  # type: ignore[operator]
        network = f"hf:{tmp_path / 'hf'}"
    else:
        network = OWN + found.network
    loss = found.loss if found.loss in (None, "distill") else f"{OWN}{found.loss}"
    return Case(network, OWN + found.data, found.arguments, loss)


@pytest.fixture
def start(case: Case, tmp_path: Path) -> Path:
    """A checkpoint of the network."""
    torch.manual_seed(0)
    save_checkpoint(find_network(case.network, case.arguments).build(), tmp_path / "w.safetensors")
    return tmp_path / "w.safetensors"


def outputs(case: Case, model: nn.Module, file: Path) -> None:
    """Store the outputs of a model for the first samples."""
    trained = open_trained(find_network(case.network, case.arguments), None, case.data, fresh=True)
    with torch.no_grad(), evaluating(model):
        found = call(model, example_inputs(trained, 2))
    torch.save(map_tensors(lambda tensor: tensor.detach(), tuple(tensors_of(found))), file)


@pytest.mark.slow
@pytest.mark.usefixtures("onnx")
@pytest.mark.parametrize("name", CASES)
def test_by_one_command_each(
    name: str, case: Case, start: Path, tmp_path: Path, loader: Loader
) -> None:
    run, packed = tmp_path / "run", tmp_path / "packed.safetensors"
    settings = [f"--set={key}={value!r}" for key, value in case.arguments.items()]
    loss = [] if case.loss is None else ["--loss", case.loss]
    said = invoke(
        "prune", case.network, *settings, "--data", case.data, *loss, "--checkpoint", start,
        "--sparsity", SPARSITY, "--budget", BUDGET, "--samples", 8, "--out", run, "--json",
    )  # fmt: skip
    record = json.loads(said.splitlines()[-1])
    assert record["sparsity"] == pytest.approx(SPARSITY, abs=0.01)
    assert record["accuracy"] is None and record["held_out_loss"] is not None
    invoke("pack", run, packed)
    pruned = open_trained(find_network(case.network, case.arguments), run, with_data=False).model
    outputs(case, pruned, tmp_path / "outputs.pt")
    assert (
        loader.difference(case.network, case.arguments, case.data, packed, tmp_path / "outputs.pt")
        < 1e-6
    )
    invoke("export", run, tmp_path / "model.onnx")
    assert (tmp_path / "model.onnx").stat().st_size > 1000


@pytest.mark.slow
@pytest.mark.usefixtures("onnx")
@pytest.mark.parametrize("name", CASES)
def test_by_one_call_each(
    name: str, case: Case, start: Path, tmp_path: Path, loader: Loader
) -> None:
    trained = open_trained(find_network(case.network, case.arguments), start, case.data)
    loss_name, function = read_loss(case.loss)
    model, packed = trained.model, tmp_path / "packed.safetensors"
    result = chita.prune(
        model,
        trained.calibration,
        sparsity=SPARSITY,
        method="chita-bso",
        loss=function or loss_name,
        samples=8,
        batch=4,
        progress=False,
    )
    assert result.sparsity == pytest.approx(SPARSITY, abs=0.01)
    chita.save(model, packed)
    outputs(case, model, tmp_path / "outputs.pt")
    assert (
        loader.difference(case.network, case.arguments, case.data, packed, tmp_path / "outputs.pt")
        < 1e-6
    )
    assert chita.export_onnx(model, example_inputs(trained, 2), tmp_path / "model.onnx") < 1e-4
