"""chita.prune with layers that have their own sparsities or limits."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import chita
from chita import ChitaError
from chita.methods import METHODS
from chita.model.weights import Weights
from chita.solver.constraints.layer_counts import erk_counts, share_out
from tests.support.messages import naming
from tests.support.pruning import (
    Watch,
    cut,
    digits,
    mlpnet,
    numbers,
    points,
    prune_quietly,
    same,
    seeded,
    snapshot,
    tiny,
)

LIMITED = [name for name, method in METHODS.items() if method.constrained]
DATA = cut(points(24), 8)


def kept(result: chita.PruneResult) -> list[int]:
    return [int(mask.sum()) for mask in result.masks.values()]


@pytest.mark.parametrize("method", LIMITED)
def test_every_method_keeps_to_every_rule(method: str) -> None:
    """72 weights, 18 left; 48 are in the first layer."""

    def counts(**keywords: Any) -> list[int]:
        return kept(prune_quietly(tiny(), DATA, method=method, **keywords))

    assert counts(allocation="uniform") == share_out(18, [48, 24], [48, 24]) == [12, 6]
    assert counts(allocation="erk") == erk_counts([(8, 6), (3, 8)], 18) == [10, 8]
    assert counts(allocation={"0.*": 0.9375}) == [3, 15]
    assert counts(at_most={"2.weight": 0.25}) == [0, 18]
    assert counts(at_least={"2.weight": 0.875})[1] <= 3
    assert sum(counts(at_least={"2.weight": 0.875})) == 18


def network() -> nn.Module:
    """36 + 96 + 216 + 72 weights; the third layer is depthwise."""
    return seeded(
        lambda: nn.Sequential(
            nn.Conv2d(1, 4, 3),
            nn.Tanh(),
            nn.Conv2d(4, 24, 1),
            nn.Tanh(),
            nn.Conv2d(24, 24, 3, groups=24),
            nn.Flatten(),
            nn.Linear(24, 3),
        )
    ).double()


@pytest.mark.parametrize(
    ("method", "block_size"), [("woodfisher", None), ("chita++", None), ("chita++", 40)]
)
@pytest.mark.parametrize(
    "rule",
    [
        {"allocation": "uniform"},
        {"allocation": "erk"},
        {"allocation": {"0.*": 0.5, "4.*": 0.95}, "at_most": {"6.*": 0.4}},
        {"at_least": {"4.*": 0.97}, "at_most": {"[06].*": 0.25}},
    ],
)
def test_stages_only_prune_and_end_within_the_limits(
    rule: dict[str, Any], method: str, block_size: int | None
) -> None:
    """CHITA may exchange weights, but leaves no layer more than it had if the counts are fixed."""
    images = numbers(40, 1, 5, 5)
    batches = cut((images, images.flatten(1)[:, :3].argmax(1)), 20)
    model = network()
    watch = Watch(model)
    result = prune_quietly(
        model, batches, method=method, stages=6, block_size=block_size, sparsity=0.8, **rule
    )
    supports = [w != 0 for w in [*watch.stages(), Weights(model).vector()]]
    assert len(supports) == 7
    for before, after in pairwise(supports):
        if method == "woodfisher":
            assert not (after & ~before).any()
        elif isinstance(rule.get("allocation"), str):
            ids = torch.arange(4).repeat_interleave(torch.tensor([36, 96, 216, 72]))
            assert (ids[after].bincount(minlength=4) <= ids[before].bincount(minlength=4)).all()
    assert [row.kept for row in result.stages] == [int(s.sum()) for s in supports[1:]]
    sparsities = [row.sparsity for row in result.layers]
    assert result.sparsity == pytest.approx(0.8, abs=1 / 420)
    if rule.get("allocation") == "uniform":
        assert sparsities == pytest.approx([0.8] * 4, abs=1 / 36)
    elif rule.get("allocation") == "erk":
        assert kept(result) == erk_counts([row.shape for row in result.layers], sum(kept(result)))
    elif "allocation" in rule:
        assert sparsities[0] == 0.5 and sparsities[2] == pytest.approx(0.95, abs=1 / 216)
        assert sparsities[3] <= 0.4
    else:
        assert max(sparsities[0], sparsities[3]) <= 0.25 and sparsities[2] >= 0.97


def test_limits_that_do_not_bind_change_nothing() -> None:
    free, limited = mlpnet(), mlpnet()
    arguments: dict[str, Any] = {"method": "chita++", "sparsity": 0.9, "stages": 3, "samples": 100}
    # At a lower sparsity dead weights alone would go, all of them in the first layer.
    arguments["start"] = 0.5
    result = prune_quietly(free, digits(400), **arguments)
    assert all(0.3 < row.sparsity < 0.95 for row in result.layers)
    again = prune_quietly(
        limited, digits(400), **arguments, at_least={"*": 0.1}, at_most={"*": 0.96}
    )
    assert kept(again) == kept(result)
    for name, mask in result.masks.items():
        assert torch.equal(mask, again.masks[name])
        torch.testing.assert_close(snapshot(limited)[name], snapshot(free)[name])


def test_the_loss_under_limits_is_below_that_of_magnitude_under_the_same() -> None:
    model = mlpnet()
    result = prune_quietly(
        model, digits(800), method="chita-bso", sparsity=0.9, batch=4, allocation="uniform"
    )
    uniform = mlpnet()
    prune_quietly(uniform, digits(800), method="magnitude-uniform", sparsity=0.9)
    assert kept(result) == [int((w.parameter != 0).sum()) for w in Weights(uniform)]
    images, labels = (torch.cat(part) for part in zip(*digits(800), strict=True))
    with torch.no_grad():
        moved, unmoved = (nn.functional.cross_entropy(m(images), labels) for m in (model, uniform))
    assert moved < 0.8 * unmoved


def test_a_run_goes_on_with_its_limits_and_with_no_others(tmp_path: Path) -> None:
    rule: dict[str, Any] = {"allocation": {"0.*": 0.9}, "at_most": {"2.*": 0.5}}
    rule["method"] = "chita++"
    whole = tiny()
    watch = Watch(whole)
    prune_quietly(whole, DATA, **rule)
    left = len(watch.inputs) - 1

    def stop(*_: Any) -> None:
        nonlocal left
        left -= 1
        if not left:
            raise KeyboardInterrupt

    model = tiny()
    handle = model.register_forward_pre_hook(stop)
    with pytest.raises(KeyboardInterrupt):
        prune_quietly(model, DATA, checkpoints=tmp_path, **rule)
    handle.remove()
    resumed: dict[str, Any] = {"checkpoints": tmp_path, "resume": True}
    with pytest.raises(ChitaError, match=naming("at_most", 0.5, 0.6)):
        prune_quietly(tiny(), DATA, **resumed, **{**rule, "at_most": {"2.*": 0.6}})
    model = tiny()
    prune_quietly(model, DATA, **resumed, **rule)
    assert same(snapshot(whole), snapshot(model))


@pytest.mark.parametrize("method", ["obs", "cbs"])
def test_methods_that_know_no_limits_say_so(method: str) -> None:
    with pytest.raises(
        ChitaError, match=naming(method, "allocation", "at_least", "at_most", "m-fac")
    ):
        prune_quietly(tiny(), DATA, method=method, at_most={"*": 0.9})


def test_what_cannot_be_had_leaves_the_model_alone() -> None:
    model = tiny()
    before = snapshot(model)
    with pytest.raises(ChitaError, match=naming("at_most", 18, 24, 72)):
        prune_quietly(model, DATA, at_most={"2.*": 0})
    with pytest.raises(ChitaError, match=naming("at_least", "3.*", "0.weight")):
        prune_quietly(model, DATA, at_least={"3.*": 0.5})
    assert same(before, snapshot(model))
