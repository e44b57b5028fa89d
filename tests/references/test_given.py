"""Networks, data and losses of users, by reference."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

from chita.errors import ChitaError
from chita.references.loss import load_loss
from chita.references.resolve import resolve_network
from chita.references.samples import load_samples
from tests.support.messages import naming, says

OWN = """
import torch
from torch import nn

model = nn.Linear(2, 3)
number = 7
nothing = None

def build(width=4, *, bias=True):
    return nn.Sequential(nn.Linear(2, width, bias=bias), nn.Linear(width, 3))

def same():
    return model

def fails():
    raise KeyError("weights")

def wrong():
    return [1]

def loader():
    return [(torch.zeros(2, 2), torch.zeros(2, dtype=torch.long))]

def generated():
    yield from loader()

def empty():
    pass

class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 3

    def __getitem__(self, index):
        return torch.zeros(2), 0

rows = Rows()

class Net(nn.Linear):
    def __init__(self):
        super().__init__(2, 3)

class Focal(nn.Module):
    def forward(self, outputs, targets):
        return outputs.sum()
"""


@pytest.fixture(autouse=True)
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "own_given.py").write_text(OWN)
    yield tmp_path
    sys.modules.pop("own_given", None)


def test_a_function_is_called_and_a_model_copied() -> None:
    built = resolve_network("own_given.py:build", {"width": 5, "bias": False}).build()
    assert isinstance(built, nn.Sequential) and built[0].weight.shape == (5, 2)
    network = resolve_network("own_given:model", {})
    first, second = network.build(), network.build()
    assert first is not second and torch.equal(first.weight, second.weight)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "arguments", "message"),
    [
        ("own_given.py:number", {}, naming("own_given.py:number", "int", "nn.Module")),
        ("own_given.py:model", {"width": 3}, naming("own_given.py:model", "--set")),
        ("own_given.py:build", {"witdh": 3}, naming("witdh", "width", "bias", "--set")),
        ("own_given.py:fails", {}, naming("own_given.py:fails", "KeyError", "weights")),
        ("own_given.py:wrong", {}, naming("own_given.py:wrong", "list", "nn.Module")),
        ("own_given.py:build", {"width": "wide"}, naming("own_given.py:build", "TypeError")),
    ],
)
def test_networks_that_cannot_be_built(text: str, arguments: dict, message: str) -> None:  # type: ignore[type-arg]
    with pytest.raises(ChitaError, match=message) as error:
        resolve_network(text, arguments).build()
    assert "\n" not in str(error.value)


def test_a_function_that_returns_one_model_twice_is_refused() -> None:
    network = resolve_network("own_given.py:same", {})
    kept = network.build()
    with pytest.raises(ChitaError, match=naming("own_given.py:same", "same")):
        network.build()
    assert isinstance(kept, nn.Module)


def test_data_are_taken_as_they_are_or_generated_for_each_pass() -> None:
    assert isinstance(load_samples("own_given.py:loader"), list)
    generated = load_samples("own_given.py:generated")
    assert len(list(generated())) == len(list(generated())) == 1
    assert len(load_samples("own_given.py:rows")) == len(load_samples("own_given.py:Rows")) == 3
    for wrong in ("nothing", "empty"):
        with pytest.raises(ChitaError, match=naming(f"own_given.py:{wrong}", "None")):
            load_samples(f"own_given.py:{wrong}")
    with pytest.raises(ChitaError, match=naming("own_given.py:fails", "KeyError")):
        load_samples("own_given.py:fails")


def test_a_loss_is_a_function_or_a_class() -> None:
    assert load_loss("own_given.py:Focal")(torch.ones(2), None) == 2
    with pytest.raises(ChitaError, match=naming("own_given.py:number", "int", "function")):
        load_loss("own_given.py:number")


def test_a_folder_of_hugging_face_must_be_one(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    with pytest.raises(ChitaError, match=naming("absent", "folder", "hf:FOLDER")):
        resolve_network("hf:absent", {})
    (tmp_path / "made").mkdir()
    with pytest.raises(ChitaError, match=naming("made", "config.json")):
        resolve_network("hf:made", {})
    for content, message in (
        ("{", naming("config.json", "JSON")),
        (json.dumps({"architectures": "Bert"}), naming("architectures", "'Bert'")),
        (json.dumps({"architectures": ["MadeUpModel"]}), naming("'MadeUpModel'", "FILE.py:NAME")),
        (json.dumps({"architectures": ["Trainer"]}), naming("'Trainer'", "FILE.py:NAME")),
    ):
        (tmp_path / "made/config.json").write_text(content)
        with pytest.raises(ChitaError, match=message):
            resolve_network("hf:made", {})
    bert = {"architectures": ["BertModel"], "model_type": "bert"}
    (tmp_path / "made/config.json").write_text(json.dumps(bert))
    with pytest.raises(ChitaError, match=naming("made", "weights", "model.safetensors")):
        resolve_network("hf:made", {}).build()


def test_timm_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(ChitaError, match=naming("timm", "chita[timm]")):
        resolve_network("timm:resnet18", {})


def test_a_folder_without_the_weights_of_a_head(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    sizes = {"vocab_size": 20, "hidden_size": 8, "num_hidden_layers": 1, "intermediate_size": 8}
    config = transformers.BertConfig(**sizes, num_attention_heads=2)
    transformers.BertModel(config).save_pretrained(tmp_path / "bert")
    content = json.loads((tmp_path / "bert/config.json").read_text())
    content["architectures"] = ["BertForSequenceClassification"]
    (tmp_path / "bert/config.json").write_text(json.dumps(content))
    network = resolve_network(f"hf:{tmp_path / 'bert'}", {})
    assert network.build_trained is not None
    with pytest.raises(ChitaError, match=naming("classifier.weight", "--checkpoint")):
        network.build_trained()
    assert isinstance(network.build(), nn.Module)  # for a checkpoint


def test_a_class_has_the_weights_of_its_constructor(caplog: pytest.LogCaptureFixture) -> None:
    """They are rarely trained, so that a run without a checkpoint would mean little."""
    found = resolve_network("own_given.py:Net", {})
    found.build()  # a checkpoint replaces its weights
    assert not caplog.records
    assert found.build_trained is not None
    assert isinstance(found.build_trained(), nn.Linear)
    assert says(caplog.text, "own_given.py:Net", "--checkpoint")
    caplog.clear()
    build = resolve_network("own_given.py:build", {}).build_trained
    assert build is not None
    build()
    assert not caplog.records
