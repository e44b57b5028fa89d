"""The mode and device of a model, how it is called, and what its outputs are."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

from chita.errors import ChitaError
from chita.model.forward import (
    answer_of,
    buffers_restored,
    device_of,
    differentiable,
    evaluating,
    features_of,
    logits_of,
    modes_restored,
    run_model,
    unwrapped,
)
from chita.model.weights import Weights


def network() -> nn.Sequential:
    model = nn.Sequential(nn.Linear(2, 2), nn.Dropout(), nn.Linear(2, 2))
    model[1].eval()
    model[2].weight.requires_grad_(False)
    return model


def flags(model: nn.Module) -> list[bool]:
    return [module.training for module in model.modules()]


def test_each_module_gets_its_own_mode_back() -> None:
    model = network()
    with pytest.raises(KeyboardInterrupt), evaluating(model):
        assert flags(model) == [False] * 4
        raise KeyboardInterrupt
    assert flags(model) == [True, True, False, True]
    with modes_restored(model):
        model.train()
        assert flags(model) == [True] * 4
    assert flags(model) == [True, True, False, True]


def test_batch_norm_forgets_what_it_has_seen() -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    model(torch.randn(4, 2))
    before = {name: buffer.clone() for name, buffer in model.named_buffers()}
    with pytest.raises(KeyboardInterrupt), buffers_restored(model):
        model(torch.randn(4, 2))
        assert int(model[1].num_batches_tracked) == 2
        raise KeyboardInterrupt
    assert all(torch.equal(buffer, before[name]) for name, buffer in model.named_buffers())


def test_gradients_reach_frozen_weights_in_any_mode() -> None:
    model = network()
    weights = Weights(model)
    inputs = torch.ones(1, 2)
    with torch.no_grad(), differentiable(weights):
        gradients = torch.autograd.grad(
            model(inputs).sum(), [weight.parameter for weight in weights]
        )
    assert gradients[1].abs().sum() > 0
    assert [weight.parameter.requires_grad for weight in weights] == [True, False]


@pytest.mark.parametrize("stores", [True, False])
def test_a_language_model_stores_no_keys_and_values_meanwhile(stores: bool) -> None:
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_attention_heads": 2}
    config = transformers.LlamaConfig(**sizes, vocab_size=5, num_hidden_layers=1, use_cache=stores)
    model, ids = nn.ModuleList([transformers.LlamaForCausalLM(config)]), torch.zeros(1, 3).long()
    with evaluating(model):
        assert model[0](input_ids=ids).past_key_values is None
    assert (model[0](input_ids=ids).past_key_values is not None) == stores


def test_device_of_a_model_without_parameters() -> None:
    assert device_of(nn.ReLU()) == torch.device("cpu")
    assert device_of(nn.BatchNorm1d(2, affine=False, device="meta")) == torch.device("meta")


def test_the_module_inside() -> None:
    model = nn.Linear(2, 2)
    assert unwrapped(model) is model
    assert unwrapped(nn.DataParallel(torch.compile(model))) is model
    averaged = AveragedModel(model)
    assert unwrapped(averaged) is averaged.module


class ByKeyword(nn.Module):
    def forward(self, a: Tensor, b: Tensor, scale: float = 1.0) -> Tensor:
        return (a - b) * scale


class ByDict(nn.Module):
    def forward(self, batch: dict[str, Tensor], **options: Any) -> Tensor:
        assert not options
        return batch["a"] - batch["b"]


@pytest.mark.parametrize("model", [ByKeyword(), ByDict()])
def test_a_single_dict_goes_where_the_model_wants_it(model: nn.Module) -> None:
    inputs = {"b": torch.tensor([1.0]), "a": torch.tensor([3.0])}
    assert run_model(model, (inputs,)).item() == 2


def test_other_inputs_are_arguments() -> None:
    assert run_model(ByKeyword(), (torch.tensor([1.0]), torch.tensor([3.0]), 2.0)).item() == -4


def test_logits_by_name_and_everything_else_as_it_is() -> None:
    logits = torch.ones(2, 3)
    assert logits_of(SimpleNamespace(logits=logits, loss=None)) is logits
    assert logits_of({"out": logits, "aux": torch.zeros(2, 3)}) is logits
    assert logits_of(logits) is logits
    nest = {"sum": logits}
    assert logits_of(nest) is nest


def test_the_answer_has_its_classes_last() -> None:
    pictures = torch.arange(2 * 3 * 4 * 5).view(2, 3, 4, 5)
    assert torch.equal(answer_of(pictures), pictures.permute(0, 2, 3, 1))
    assert answer_of(torch.ones(2, 7, 3)).shape == (2, 7, 3)
    assert answer_of(torch.ones(2, 3)).shape == (2, 3)
    assert answer_of(torch.ones(2)).shape == (2, 1)
    first, second = torch.ones(2, 3), torch.zeros(2, 4)
    assert answer_of((first, second)) is first


def test_a_hidden_state_counts_only_without_logits() -> None:
    hidden, logits = torch.ones(2, 7, 3), torch.zeros(2, 5)
    assert answer_of(SimpleNamespace(last_hidden_state=hidden, pooler_output=logits)) is hidden
    both = SimpleNamespace(last_hidden_state=hidden, logits=logits)
    assert answer_of(both) is logits
    assert features_of(both) is None
    assert features_of({"last_hidden_state": hidden}) is hidden


@pytest.mark.parametrize("outputs", [None, {}, (), {"boxes": torch.ones(2)}, torch.tensor(1.0)])
def test_no_answer_is_an_error(outputs: Any) -> None:
    with pytest.raises(ChitaError, match="loss='distill'"):
        answer_of(outputs)
