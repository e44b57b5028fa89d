from pathlib import Path

import pytest
import torch
from torch import nn

import chita
from chita import ChitaError, zoo
from chita.files.checkpoint import save_checkpoint
from tests.files.packed.states import same_bits, small_state, sparse
from tests.support.messages import naming


class Tied(nn.Module):
    """An embedding and a head on the same weights, with batch norm's buffers between them."""

    def __init__(self, seed: int, *, tied: bool = True) -> None:
        super().__init__()
        self.embedding = nn.Embedding(20, 8)
        self.norm = nn.BatchNorm1d(8)
        self.head = nn.Linear(8, 20, bias=False)
        if tied:
            self.head.weight = self.embedding.weight
        with torch.no_grad():
            for number, parameter in enumerate(self.parameters()):
                parameter.copy_(sparse(tuple(parameter.shape), 0.4, seed=seed + number))
        self.norm.running_mean.copy_(sparse((8,), 1.0, seed=seed))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "file.safetensors"
    chita.save(Tied(0), path)
    return path


def refused(into: nn.Module, path: Path, match: str) -> None:
    before = {name: tensor.clone() for name, tensor in into.state_dict().items()}
    with pytest.raises(ChitaError, match=match):
        chita.load(path, into=into)
    assert same_bits(into.state_dict(), before)


def test_into_a_model_in_place(path: Path) -> None:
    model = Tied(5)
    parameters = dict(model.named_parameters())
    found = chita.load(path, into=model)
    assert same_bits(model.state_dict(), Tied(0).state_dict())
    assert same_bits(found, model.state_dict())
    assert all(parameters[name] is p for name, p in model.named_parameters())
    assert model.head.weight is model.embedding.weight
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_without_a_model_any_code_can_use_it(path: Path) -> None:
    model = Tied(5)
    model.load_state_dict(chita.load(str(path)))
    assert same_bits(model.state_dict(), Tied(0).state_dict())


def test_into_a_state_dict(path: Path) -> None:
    state = Tied(5).state_dict()
    chita.load(path, into=state)
    assert same_bits(state, Tied(0).state_dict())


def test_a_wrapped_model_has_the_names_of_the_bare_one(tmp_path: Path) -> None:
    path = tmp_path / "file.safetensors"
    wrapped = nn.DataParallel(torch.compile(Tied(0)))
    chita.save(wrapped, path)
    bare = Tied(5)
    assert same_bits(chita.load(path, into=bare), Tied(0).state_dict())
    other = torch.compile(Tied(5))
    chita.load(path, into=other)
    assert same_bits(bare.state_dict(), Tied(0).state_dict())
    assert same_bits(other._orig_mod.state_dict(), Tied(0).state_dict())


def test_a_model_that_does_not_fit_is_left_alone(path: Path) -> None:
    refused(nn.Linear(3, 4), path, naming("file.safetensors", "weight, bias", "embedding.weight"))
    larger = Tied(5)
    larger.norm = nn.BatchNorm1d(9)
    refused(larger, path, naming("file.safetensors", "norm.weight", "(8,)", "(9,)"))
    refused(Tied(5).double(), path, naming("file.safetensors", torch.float32, torch.float64))
    with pytest.raises(ChitaError, match=naming("into", "embedding.weight", "meta")):
        chita.load(path, into=Tied(5).to("meta"))


def test_arguments_that_are_no_path_and_no_model(path: Path) -> None:
    with pytest.raises(ChitaError, match=naming("path", "NoneType")):
        chita.load(None)  # type: ignore[arg-type]
    with pytest.raises(ChitaError, match=naming("into", "torch.nn.Module", "str")):
        chita.load(path, into="model")  # type: ignore[arg-type]


def test_a_model_without_memory_for_each_entry_is_named(tmp_path: Path) -> None:
    class Expanded(nn.Linear):
        def __init__(self) -> None:
            super().__init__(3, 2)
            self.register_buffer("scale", torch.ones(1).expand(5))

    file = tmp_path / "file.safetensors"
    chita.save(nn.Linear(3, 2), file)
    with pytest.raises(ChitaError, match=naming("'weight'", "shape")):
        chita.load(file, into=nn.LazyLinear(2))
    model = Expanded()
    chita.save(model, file)
    before = model.weight.clone()
    with torch.no_grad():
        model.weight.zero_()
    with pytest.raises(ChitaError, match=naming("scale", ".clone()")):
        chita.load(file, into=model)
    assert not bool(model.weight.any())  # left alone
    model.scale = torch.ones(5)
    chita.load(file, into=model)
    assert torch.equal(model.weight, before)


def test_tied_weights_must_be_equal_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "file.safetensors"
    chita.save(Tied(0, tied=False), path)
    refused(Tied(5), path, naming("file.safetensors", "head.weight", "embedding.weight", "tied"))
    untied = Tied(0, tied=False)
    with torch.no_grad():
        untied.head.weight.copy_(untied.embedding.weight)
    chita.save(untied, path)
    chita.load(path, into=Tied(5))
    chita.save(Tied(0), path)
    chita.load(path, into=untied)  # each gets the values, and has its own memory still
    assert untied.head.weight is not untied.embedding.weight
    assert same_bits(untied.state_dict(), Tied(0).state_dict())


def test_a_network_of_the_paper_pruned_and_back(tmp_path: Path) -> None:
    network = zoo.get("resnet20")
    model = network.build()
    chita.prune(model, None, sparsity=0.98, method="magnitude", include=network.prunable)
    chita.save(model, tmp_path / "file.safetensors")
    other = network.build()
    chita.load(tmp_path / "file.safetensors", into=other)
    assert same_bits(other.state_dict(), model.state_dict())


def test_a_plain_file_is_refused_by_its_name(tmp_path: Path) -> None:
    save_checkpoint(small_state(), tmp_path / "plain.safetensors")
    with pytest.raises(ChitaError, match=naming("plain.safetensors", "chita pack")):
        chita.load(tmp_path / "plain.safetensors")
