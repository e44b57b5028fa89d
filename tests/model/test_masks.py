"""Masks by name: read off the zeros of a model, checked and applied."""

import copy
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel

import chita
from chita.errors import ChitaError
from chita.model.masks import apply_masks, masks_of
from tests.support.messages import naming


def network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ConvTranspose1d(4, 2, 2), nn.Linear(5, 3)
    )


def tied() -> Any:
    model: Any = nn.Module()
    model.first, model.second = nn.Linear(4, 4), nn.Linear(4, 4)
    model.second.weight = model.first.weight
    return model


def compiled(model: nn.Module) -> Any:
    return torch.compile(model, backend="eager")


WRAPPERS = {
    "compiled": compiled,
    "averaged": AveragedModel,
    "data parallel": nn.DataParallel,
    "both": lambda model: nn.DataParallel(compiled(model)),
}


def test_masks_of_zeros_are_those_of_the_result() -> None:
    model = network()
    result = chita.prune(model, [], sparsity=0.5, method="magnitude", progress=False)
    masks = masks_of(model)
    assert masks.keys() == result.masks.keys() and len(masks) == 3
    assert all(torch.equal(mask, result.masks[name]) for name, mask in masks.items())
    assert all(mask.dtype == torch.bool and not mask.requires_grad for mask in masks.values())


def test_only_prunable_parameters_with_zeros_have_masks() -> None:
    """Batch norm starts with biases of zero, which are not prunable."""
    model = network()
    assert masks_of(model) == {}
    with torch.no_grad():
        model.get_parameter("3.weight")[0, 1] = -0.0
        model.get_parameter("3.bias")[0] = 0.0
    assert list(masks_of(model)) == ["3.weight"]
    assert int((~masks_of(model)["3.weight"]).sum()) == 1
    assert list(masks_of(model, include="3.*")) == ["3.weight", "3.bias"]
    assert masks_of(model, exclude="3.*") == {}


def test_zeros_are_read_in_any_type_and_a_tied_weight_once() -> None:
    model = tied()
    with torch.no_grad():
        model.first.weight[0] = 0
    for dtype in (torch.float16, torch.bfloat16, torch.float64):
        assert list(masks_of(model.to(dtype))) == ["first.weight"]
    mixed = nn.Sequential(nn.Linear(2, 2).bfloat16(), nn.Linear(2, 2))
    apply_masks(mixed, {f"{i}.weight": torch.eye(2, dtype=torch.bool) for i in range(2)})
    assert list(masks_of(mixed)) == ["0.weight", "1.weight"]


@pytest.mark.parametrize("wrap", WRAPPERS.values(), ids=WRAPPERS)
def test_names_are_those_of_the_plain_module_and_both_kinds_are_accepted(wrap: Any) -> None:
    model = network()
    mask = torch.rand(3, 5) > 0.5
    wrapped = wrap(model)
    apply_masks(wrapped, {"3.weight": mask})
    assert list(masks_of(wrapped)) == ["3.weight"]
    assert torch.equal(masks_of(wrapped)["3.weight"], mask)
    (full,) = (name for name, p in wrapped.named_parameters() if name.endswith("3.weight"))
    for target in (wrap(network()), network()):
        apply_masks(target, {full: mask})
        assert torch.equal(masks_of(target)["3.weight"], mask)


def test_names_of_a_compiled_layer() -> None:
    model: Any = network()
    bare = copy.deepcopy(model)
    model[3] = compiled(model[3])
    result = chita.prune(model, [], sparsity=0.5, method="magnitude", progress=False)
    assert "3._orig_mod.weight" in result.masks
    apply_masks(bare, result.masks)
    assert torch.equal(bare.get_parameter("3.weight"), model[3].weight)


def test_a_parameter_of_zeros_only_is_mentioned(caplog: pytest.LogCaptureFixture) -> None:
    """It may be an adapter that starts at zero and should be trained."""
    model = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 3))
    nn.init.zeros_(model.get_parameter("1.weight"))
    assert not masks_of(model)["1.weight"].any()
    assert "1.weight" in caplog.text


@pytest.mark.parametrize(
    ("model", "arguments", "message"),
    [
        ({"weight": torch.zeros(3)}, {}, naming("model", "torch.nn.Module", "dict")),
        (nn.BatchNorm1d(3), {}, naming("prunable", "include=")),
        (nn.Linear(2, 2), {"include": "fc*"}, naming("include", "fc*", "weight")),
        (nn.Linear(2, 2), {"exclude": 3}, naming("exclude", 3)),
        (nn.Linear(2, 2, device="meta"), {}, naming("weight", "values")),
        (nn.LazyLinear(2), {}, naming("weight", "values")),
    ],
)
def test_what_has_no_masks_is_an_error(model: Any, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ChitaError, match=message):
        masks_of(model, **arguments)


def test_masks_zero_what_they_drop() -> None:
    model = nn.Linear(3, 2)
    kept, bias = model.weight.detach().clone(), model.bias.detach().clone()
    mask = torch.tensor([[True, False, True], [False, True, False]])
    apply_masks(model, {"weight": mask})
    assert torch.equal(model.weight, torch.where(mask, kept, 0.0))
    assert torch.equal(model.bias, bias)
    assert model.weight.requires_grad


def test_pruned_weights_have_no_sign() -> None:
    """-0.0 is equal to zero, and yet has a bit that files must keep."""
    model = nn.Linear(3, 2, bias=False)
    with torch.no_grad():
        model.weight.fill_(-1.0)
    apply_masks(model, {"weight": torch.zeros(2, 3, dtype=torch.bool)})
    assert not torch.signbit(model.weight).any()


def test_masks_go_by_either_name_of_a_tied_weight() -> None:
    model = tied()
    apply_masks(model, {"second.weight": torch.zeros(4, 4, dtype=torch.bool)})
    assert not bool(model.first.weight.any())


@pytest.mark.parametrize(
    ("name", "mask", "message"),
    [
        ("fc.weight", torch.ones(3, 5, dtype=torch.bool), naming("masks", "fc.weight")),
        (
            "3.weight",
            torch.ones(5, 3, dtype=torch.bool),
            naming("mask", "3.weight", "(3, 5)", "(5, 3)"),
        ),
        ("3.weight", torch.ones(3, 5), naming("mask", "3.weight", "bool", torch.float32)),
        ("3.weight", [True] * 15, naming("mask", "3.weight", "bool", "list")),
    ],
)
def test_a_wrong_mask_changes_nothing(name: str, mask: Any, message: str) -> None:
    model = network()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    masks = {"0.weight": torch.zeros(4, 1, 3, 3, dtype=torch.bool), name: mask}
    with pytest.raises(ChitaError, match=message):
        apply_masks(model, masks)
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())


def test_what_holds_no_masks_is_named() -> None:
    model: Any = network()
    result: Any = chita.prune(model, [], sparsity=0.5, method="magnitude", progress=False)
    with pytest.raises(ChitaError, match=naming("masks", ".masks", "PruneResult")):
        apply_masks(model, result)
    with pytest.raises(ChitaError, match=naming("masks", "dict", "NoneType")):
        apply_masks(model, None)  # type: ignore[arg-type]
    with pytest.raises(ChitaError, match=naming("model", "torch.nn.Module", "dict")):
        apply_masks(result.masks, model)
