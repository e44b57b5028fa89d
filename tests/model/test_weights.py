from typing import Any

import pytest
import torch
from torch import nn

from chita.errors import ChitaError
from chita.model.weights import Weights
from tests.support.messages import naming


def network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ConvTranspose1d(4, 2, 2), nn.Linear(5, 3)
    )


def names(*args: Any, **kwargs: Any) -> list[str]:
    return [weight.name for weight in Weights(*args, **kwargs)]


def test_linear_and_convolution_weights_by_default() -> None:
    weights = Weights(network())
    assert [w.name for w in weights] == ["0.weight", "2.weight", "3.weight"]
    assert weights.sizes == (4 * 9, 4 * 2 * 2, 15)
    assert weights.size == sum(weights.sizes)
    assert [(w.start, w.stop) for w in weights] == [(0, 36), (36, 52), (52, 67)]
    assert (weights.device, weights.dtype) == (torch.device("cpu"), torch.float32)


def test_globs_choose_by_name() -> None:
    model = network()
    assert names(model, include="*.bias") == ["0.bias", "1.bias", "2.bias", "3.bias"]
    assert names(model, include=["0.*", "3.*"], exclude="*.bias") == ["0.weight", "3.weight"]
    assert names(model, exclude=["0.*"]) == ["2.weight", "3.weight"]


@pytest.mark.parametrize("argument", ["include", "exclude"])
def test_a_pattern_that_matches_nothing_is_an_error(argument: str) -> None:
    with pytest.raises(ChitaError, match=naming(argument, "fc*", "0.weight")):
        Weights(network(), **{argument: ["0.*", "fc*"]})


@pytest.mark.parametrize("model", [nn.BatchNorm1d(3), nn.ReLU()])
def test_no_prunable_weights_is_an_error(model: nn.Module) -> None:
    wanted = naming("prunable", "exclude=None", "include=", "chita.register_layer")
    with pytest.raises(ChitaError, match=wanted):
        Weights(model)


@pytest.mark.parametrize("include", [None, "0.*"])
def test_patterns_that_leave_no_weights_are_named(include: str | None) -> None:
    wanted = naming("prunable", f"include={include!r}", "exclude='*'", without="Linear")
    with pytest.raises(ChitaError, match=wanted):
        Weights(network(), include=include, exclude="*")


def tied() -> nn.Module:
    model = nn.Module()
    model.first = nn.Linear(4, 4)
    model.second = nn.Linear(4, 4)
    model.second.weight = model.first.weight
    return model


def test_a_tied_weight_counts_once_and_goes_by_either_name() -> None:
    assert names(tied()) == ["first.weight"]
    assert names(tied(), include="second.weight") == ["first.weight"]
    with pytest.raises(ChitaError, match=naming("prunable", "exclude='second.weight'")):
        Weights(tied(), exclude="second.weight")


def test_integer_weights_are_an_error() -> None:
    model = nn.Linear(3, 2)
    model.weight = nn.Parameter(torch.ones(2, 3, dtype=torch.int64), requires_grad=False)
    with pytest.raises(ChitaError, match=naming(torch.int64, "exclude='weight'")):
        Weights(model)


def test_two_devices_or_types_are_an_error() -> None:
    model = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 2, device="meta"))
    with pytest.raises(ChitaError, match=naming("devices", "0.weight", "cpu", "1.weight", "meta")):
        Weights(model)
    assert names(model, exclude="1.*") == ["0.weight"]
    model = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 2, dtype=torch.float64))
    with pytest.raises(
        ChitaError, match=naming("0.weight", torch.float32, "1.weight", torch.float64)
    ):
        Weights(model)


def test_vector_assign_and_split_are_one_map() -> None:
    model = network()
    weights = Weights(model)
    pieces = [model[i].weight.detach() for i in (0, 2, 3)]
    vector = weights.vector()
    assert torch.equal(vector, torch.cat([piece.reshape(-1) for piece in pieces]))
    new = torch.arange(float(weights.size))
    assert not torch.equal(vector, new)
    bias = model[3].bias.clone()
    weights.assign(new)
    assert torch.equal(weights.vector(), new)
    assert torch.equal(model[3].weight, new[52:].view(3, 5))
    assert torch.equal(model[3].bias, bias)
    split = weights.split(new)
    assert list(split) == ["0.weight", "2.weight", "3.weight"]
    assert all(torch.equal(split[name], dict(model.named_parameters())[name]) for name in split)


def test_a_vector_is_a_copy() -> None:
    model = nn.Linear(3, 2, bias=False)
    vector = Weights(model).vector()
    vector.fill_(7.0)
    assert not bool((model.weight == 7.0).any())


def test_lent_weights_come_back() -> None:
    model = network()
    weights = Weights(model)
    before = weights.vector()
    with pytest.raises(KeyboardInterrupt), weights.temporarily(torch.zeros(weights.size)):
        assert not bool(weights.vector().any())
        raise KeyboardInterrupt
    assert torch.equal(weights.vector(), before)


def test_a_failed_replacement_changes_nothing() -> None:
    model = network()
    weights = Weights(model)
    before = weights.vector()
    with pytest.raises(RuntimeError):
        weights.replace(torch.zeros(weights.size - 1))  # too short for the last weight only
    assert torch.equal(weights.vector(), before)
    weights.replace(torch.zeros(weights.size))
    assert not bool(weights.vector().any())


def test_replaced_weights_have_no_negative_zero() -> None:
    model = nn.Linear(3, 2, bias=False)
    Weights(model).replace(torch.tensor([-0.0, 0.0, -1.0, -0.0, 2.0, 0.0]))
    assert torch.signbit(model.weight).flatten().tolist() == [False, False, True, *[False] * 3]


def test_weights_without_some_are_laid_out_anew() -> None:
    weights = Weights(network())
    left = weights.without(["0.weight"])
    assert [w.name for w in left] == [w.name for w in weights][1:]
    assert [w.start for w in left] == [0, 16]
    assert torch.equal(left.vector(), weights.vector()[weights.entries[0].stop :])
