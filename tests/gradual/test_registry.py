import io
from typing import Any

import pytest
import torch
from torch import nn

from chita.errors import ChitaError
from chita.gradual.registry import METHODS, make_sparsifier
from chita.gradual.sparsifier import Sparsifier
from tests.gradual.training import SIZES, run, sgd, small_model, small_plan, take_in, zeros
from tests.support.messages import naming

PLAN = small_plan(0.8)
SETTINGS: dict[str, dict[str, Any]] = {
    "chita-bso": {"samples": 40, "batch": 2, "ridge": 1e-3},
    "chita++": {"samples": 40, "batch": 2, "ridge": 1e-3},
    "woodfisher": {"samples": 40, "batch": 2, "ridge": 1e-3},
    "m-fac": {"samples": 40, "batch": 2, "ridge": 1e-3},
    "incremental": {"every": 7},
    "gmp": {"every": 7},
    "rigl": {"every": 7},
}
GROWS = ("rigl", "snfs")  # a weight may have just grown, and still be at zero


def begun(name: str) -> tuple[nn.Module, torch.optim.SGD, Sparsifier]:
    model = small_model()
    optimizer = sgd(model)
    sparsifier = make_sparsifier(name, model, optimizer, PLAN, **SETTINGS.get(name, {}))
    take_in(optimizer, sparsifier)
    return model, optimizer, sparsifier


@pytest.mark.parametrize("name", METHODS)
def test_the_target_is_met_exactly(name: str) -> None:
    model, optimizer, sparsifier = begun(name)
    run(model, optimizer, sparsifier, PLAN)
    sparsifier.finalize()
    left = sum(SIZES) - sum(zeros(model))
    k = int(0.2 * sum(SIZES))
    assert 0.8 * k < left <= k if name in GROWS else left == k
    assert set(dict(model.named_parameters())) == set(dict(small_model().named_parameters()))


@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS)
def test_training_goes_on_from_a_saved_state(name: str) -> None:
    """Saved before epoch 3 and loaded into new objects: the same weights in the end."""
    with torch.random.fork_rng():
        torch.manual_seed(3)
        model, optimizer, sparsifier = begun(name)
        run(model, optimizer, sparsifier, PLAN, end=3)
        file = io.BytesIO()
        states = (model.state_dict(), optimizer.state_dict(), sparsifier.state_dict())
        torch.save((*states, torch.get_rng_state()), file)
        run(model, optimizer, sparsifier, PLAN, begin=3)
        sparsifier.finalize()
        again, optimizer, sparsifier = begun(name)
        file.seek(0)
        saved = torch.load(file, weights_only=True)
        again.load_state_dict(saved[0])
        optimizer.load_state_dict(saved[1])
        sparsifier.load_state_dict(saved[2])
        torch.set_rng_state(saved[3])
        run(again, optimizer, sparsifier, PLAN, begin=3)
        sparsifier.finalize()
    for name, parameter in model.named_parameters():
        assert torch.equal(again.get_parameter(name), parameter)


def test_rivals_start_as_in_their_papers() -> None:
    assert {name for name, method in METHODS.items() if method.from_scratch} == {
        "rigl", "snfs", "dnw",
    }  # fmt: skip


def test_an_unknown_method_is_told() -> None:
    model = small_model()
    with pytest.raises(ChitaError, match=naming("method", "chita-bso", "magic")):
        make_sparsifier("magic", model, sgd(model), PLAN)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("rigl", naming("rigl", "evry", "every", "share", "until")),
        ("dnw", naming("dnw", "evry")),
        ("m-fac", naming("evry", "samples")),
    ],
)
def test_an_unknown_setting_is_told(name: str, message: str) -> None:
    model = small_model()
    with pytest.raises(ChitaError, match=message):
        make_sparsifier(name, model, sgd(model), PLAN, evry=5)
