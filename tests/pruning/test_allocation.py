import math
import random
import re
from typing import NamedTuple

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from chita.errors import ChitaError
from chita.pruning.allocation import Allocation, allocate
from chita.pruning.config import kept_weights
from chita.solver.constraints.layer_counts import erk_counts, share_out
from tests.support.messages import naming

MLP = {"fc1.weight": (40, 784), "fc2.weight": (20, 40), "fc3.weight": (10, 20)}


def sum_of(shapes: dict[str, tuple[int, ...]]) -> int:
    return sum(math.prod(shape) for shape in shapes.values())


def made(*arguments: object, **keywords: object) -> Allocation:
    found = allocate(*arguments, **keywords)  # type: ignore[arg-type]
    assert found is not None
    return found


def test_without_a_rule_there_is_no_allocation() -> None:
    assert allocate(MLP, 100) is None
    assert allocate(MLP, 100, at_least={}, at_most={}) is None


@pytest.mark.parametrize("k", [0, 1, 1618, 3235, 32360])
def test_uniform_and_erk_are_exact(k: int) -> None:
    uniform, sizes = made(MLP, k, rule="uniform"), [31360, 800, 200]
    assert list(uniform.least) == list(uniform.most) == share_out(k, sizes, sizes)
    erk = made(MLP, k, rule="erk")
    assert list(erk.least) == list(erk.most) == erk_counts(list(MLP.values()), k)


def test_limits_are_counted_exactly() -> None:
    """1 - 0.9 is a hair less than a tenth in floating point, but not here."""
    limited = made(MLP, 3000, at_least={"fc2*": 0.9}, at_most={"fc1*": 0.95, "fc3*": 0})
    assert limited.least == (1568, 0, 200)
    assert limited.most == (31360, 80, 200)
    rounded = made({"a": (7,), "b": (100,)}, 50, at_least={"a": 0.5}, at_most={"b": 0.505})
    assert (rounded.least, rounded.most) == ((0, 50), (3, 100))


def test_named_layers_get_their_sparsity_and_the_others_what_is_left() -> None:
    some = made(MLP, 3000, rule={"fc2.weight": 0.5, "fc3.weight": 0.25})
    assert (some.least, some.most) == ((0, 400, 150), (31360, 400, 150))
    between = made({"a": (7,), "b": (10,)}, 5, rule={"a": 0.5})
    assert (between.least[0], between.most[0]) == (3, 4)


def test_of_patterns_the_last_that_matches_counts() -> None:
    found = made(MLP, 3886, rule={"*": 0.9, "fc2.*": 0.5, "fc[23].*": 0.25})
    assert found.most == (3136, 600, 150)


def test_limits_bound_uniform_shares() -> None:
    found = made(MLP, 3236, rule="uniform", at_most={"fc3*": 0.0}, at_least={"fc2*": 0.95})
    assert found.least == found.most == (2996, 40, 200)


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"rule": {"conv*": 0.5}}, naming("allocation", "conv*", "fc1.weight, fc2.weight")),
        ({"at_least": {"conv*": 0.5}}, naming("at_least", "conv*", "fc1.weight")),
        ({"at_most": {"conv*": 0.5}}, naming("at_most", "conv*", "fc1.weight")),
        (
            {"at_least": {"fc1*": 0.9}, "at_most": {"fc1*": 0.8}},
            naming("fc1.weight", 0.9, 0.8, "at_least", "at_most"),
        ),
        (
            {"rule": {"fc2*": 0.9}, "at_most": {"fc?.weight": 0.8}},
            naming("fc2.weight", 0.9, 0.8, "allocation", "at_most"),
        ),
    ],
)
def test_contradictions_are_named(keywords: dict[str, object], message: str) -> None:
    with pytest.raises(ChitaError, match=message):
        allocate(MLP, 3235, **keywords)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("keywords", "allowed"),  # the fewest and the most weights that may be kept
    [
        ({"at_most": {"fc1*": 0.5}}, (15680, 32360)),
        ({"at_least": {"fc1*": 0.98}, "at_most": {"fc[23]*": 0.5}}, (500, 1627)),
        ({"rule": {"fc1*": 0.98, "fc2*": 0.5, "fc3*": 0}}, (1227, 1228)),
    ],
)
def test_the_sparsities_in_the_message_work(
    keywords: dict[str, object], allowed: tuple[int, int]
) -> None:
    p = sum_of(MLP)
    with pytest.raises(ChitaError, match=naming(3235, p, *allowed)) as error:
        allocate(MLP, kept_weights(p, 0.9), **keywords)  # type: ignore[arg-type]
    numbers = [float(number) for number in re.findall(r"\d+(?:\.\d+)?", str(error.value))]
    ends = [kept_weights(p, number) for number in numbers if number < 1]
    assert sorted(ends) == list(allowed)
    for k in ends:
        made(MLP, k, **keywords)


def test_where_every_layer_is_named_the_message_has_the_one_sparsity_that_works() -> None:
    rule = {"fc1*": 0.95, "fc2*": 0.8, "fc3*": 0.6}
    with pytest.raises(ChitaError, match=naming("sparsity", 1808, 0.944113103)):
        allocate(MLP, 3235, rule=rule)
    found = made(MLP, kept_weights(sum_of(MLP), 0.944113103), rule=rule)
    assert found.least == found.most == (1568, 160, 80)


class Case(NamedTuple):
    allocation: Allocation
    stages: list[int]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Any allocation that is possible, and the weights kept at each stage down to its k."""
    sizes = draw(st.lists(st.integers(1, 40), min_size=1, max_size=6))
    shapes = {f"layer{i}": (size,) for i, size in enumerate(sizes)}
    share = st.floats(0, 0.99)
    shares = st.dictionaries(st.sampled_from(list(shapes)), share)
    rule = draw(st.one_of(st.sampled_from(["global", "uniform", "erk"]), shares))
    k = draw(st.integers(0, sum(sizes)))
    try:
        found = allocate(shapes, k, rule=rule, at_least=draw(shares), at_most=draw(shares))
    except ChitaError:
        found = None
    assume(found is not None)
    assert found is not None
    between = draw(st.lists(st.integers(k, sum(sizes)), max_size=5))
    return Case(found, [*sorted(between, reverse=True), k])


@given(cases())
def test_every_stage_is_possible_and_the_last_is_within_the_limits(case: Case) -> None:
    allocation, stages = case
    for k in stages:
        least, most = allocation.stage(k)
        assert all(0 <= a <= b <= n for a, b, n in zip(least, most, allocation.sizes, strict=True))
        assert sum(least) <= k <= sum(most)
    assert allocation.stage(stages[-1]) == (allocation.least, allocation.most)


@given(cases(), st.randoms(use_true_random=False))
def test_stages_never_ask_back_pruned_weights(case: Case, chance: random.Random) -> None:
    """From any counts that a stage allows, the next stage's can be reached by pruning alone."""
    allocation, stages = case
    counts = list(allocation.sizes)
    for k in stages:
        least, most = allocation.stage(k)
        room = [min(c, b) - a for c, a, b in zip(counts, least, most, strict=True)]
        assert min(room) >= 0
        assert sum(least) + sum(room) >= k
        counts, left = list(least), k - sum(least)
        for i in chance.sample(range(len(room)), len(room)):  # as lopsided as can be
            counts[i] += min(room[i], left)
            left -= min(room[i], left)
        assert sum(counts) == k


def test_a_limited_layer_goes_down_with_the_others() -> None:
    """Half of what is pruned by the end is pruned: the layer has half of its loss behind it."""
    allocation = made({"a": (1000,), "b": (1000,)}, 400, at_least={"a": 0.9})
    assert allocation.stage(1200)[1] == (550, 1000)
    assert allocation.stage(2000)[1] == (1000, 1000)
    fixed = made({"a": (1000,), "b": (1000,)}, 400, rule={"a": 0.9, "b": 0.7})
    assert fixed.stage(1200)[1] == (550, 650)
