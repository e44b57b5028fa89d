from random import Random

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from chita.errors import ChitaError
from chita.solver.constraints import n_of_m as groups_module
from chita.solver.constraints.constraint import ANY_SUPPORT, top_k
from chita.solver.constraints.n_of_m import Groups
from chita.solver.stepsize import Path
from tests.solver.limits import Limits, limits
from tests.solver.problems import random_problem, sparse_point

MAGNITUDES = st.integers(-4, 4)  # with ties
# PADDING and COMPARED: groups are sorted one after the other, as rows, or compared in pairs.
WAYS = st.sampled_from([(0, 0), (100, 0), (100, 100)])


def _largest(given_limits: Limits, values: list[int], way: tuple[int, int]) -> list[int]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(groups_module, "PADDING", way[0])
        patch.setattr(groups_module, "COMPARED", way[1])
        return given_limits.groups.largest(torch.tensor(values).double(), given_limits.k).tolist()


@given(limits(), st.data(), WAYS)
@settings(deadline=None, max_examples=300)
def test_the_projection_is_the_best_of_all_allowed_subsets(
    given_limits: Limits, data: st.DataObject, way: tuple[int, int]
) -> None:
    """In every way to rank the weights of a group."""
    p = len(given_limits.ids)
    values = data.draw(st.lists(MAGNITUDES, min_size=p, max_size=p))
    kept = _largest(given_limits, values, way)

    def worth(support: list[int]) -> list[int]:
        return sorted((abs(values[i]) for i in support), reverse=True)

    assert given_limits.allow(kept)
    assert kept == sorted(kept)
    assert worth(kept) == max(worth(support) for support in given_limits.supports())


@given(limits(), st.data(), WAYS)
@settings(deadline=None)
def test_the_lowest_of_equals_win(
    given_limits: Limits, data: st.DataObject, way: tuple[int, int]
) -> None:
    """No swap with an equal of a lower index leads to another allowed support."""
    p = len(given_limits.ids)
    values = data.draw(st.lists(st.integers(0, 1), min_size=p, max_size=p))
    kept = _largest(given_limits, values, way)
    for i in kept:
        for j in set(range(i)) - set(kept):
            swapped = [j if x == i else x for x in kept]
            same_group = given_limits.ids[i] == given_limits.ids[j]
            assert not (values[i] == values[j] and same_group and given_limits.allow(swapped))


@given(limits(p=10), st.integers(0, 10**6), st.integers(0, 6))
@settings(deadline=None)
def test_the_first_breaking_point_is_the_one_of_a_fine_scan(
    given_limits: Limits, seed: int, zeros: int
) -> None:
    problem = random_problem(seed, p=10, constraint=given_limits.groups)
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(10, generator=generator, dtype=torch.float64)
    support = problem.largest(values, given_limits.k)
    values = values[support]
    values[:zeros] = 0.0
    x = sparse_point(problem, support, values)
    path = Path(problem, x, given_limits.k)
    tau_c = path.first_breaking_point()

    def support_at(tau: float) -> list[int]:
        """Of w(tau), exactly: by single exchanges there is nothing to gain."""
        moved = (x.w - tau * path.g).abs().tolist()
        return max(given_limits.supports(), key=lambda s: sum(moved[i] for i in s))

    near_zero = sorted(path.support.tolist())
    assume(tau_c > 1e-8)
    for share in (1e-6, 0.1, 0.5, 0.9, 1 - 1e-6):
        assert support_at(min(tau_c, 1e6) * share) == near_zero
    if tau_c < torch.inf:
        assert support_at(tau_c * (1 + 1e-6)) != near_zero


def test_fixed_counts_never_break_for_a_weight_of_another_group() -> None:
    groups = Groups.in_a_row([2, 2], [1, 1], [1, 1], torch.device("cpu"))
    w = torch.tensor([1.0, 0.0, 1.0, 0.0])
    g = torch.tensor([0.0, 100.0, 0.0, 0.5])
    support = torch.tensor([0, 2])
    assert groups.breaking_point(w, g, support) == pytest.approx(0.01)
    g[1] = 0.25  # now the second group is the first to change
    assert groups.breaking_point(w, g, support) == pytest.approx(2.0)


@given(limits(p=10), st.integers(0, 10**6))
@settings(deadline=None)
def test_one_group_without_limits_is_any_support(given_limits: Limits, seed: int) -> None:
    x, g = torch.randn(2, 10, generator=torch.Generator().manual_seed(seed))
    k = given_limits.k
    one = Groups.in_a_row([10], [0], [10], torch.device("cpu"))
    w, support = one.project(x, k)
    assert torch.equal(support, top_k(x, k))
    if 0 < k < 10:
        assert one.breaking_point(w, g, support) == ANY_SUPPORT.breaking_point(w, g, support)


@given(limits(p=10), st.integers(0, 10**6), st.integers(0, 10))
@settings(deadline=None)
def test_where_k_is_out_of_reach_the_limits_give_way(
    given_limits: Limits, seed: int, k: int
) -> None:
    """Larger supports hold all that the limits ask for: shrinking them ends at these."""
    x = torch.randn(10, generator=torch.Generator().manual_seed(seed))
    groups = given_limits.groups
    kept = groups.largest(x, k)
    assert len(kept) == k
    counts = torch.bincount(groups.ids[kept], minlength=len(groups.least))
    if k > sum(given_limits.most):
        assert bool((counts >= groups.most).all())
    if k < sum(given_limits.least):
        assert bool((counts <= groups.least).all())


@given(limits(p=12), st.integers(0, 10**6), st.sets(st.integers(0, 11)))
@settings(deadline=None)
def test_a_restriction_allows_what_the_whole_allows(
    given_limits: Limits, seed: int, more: set[int]
) -> None:
    generator = torch.Generator().manual_seed(seed)
    x, y = torch.randn(2, 12, generator=generator)
    groups, k = given_limits.groups, given_limits.k
    index = torch.tensor(sorted({*groups.largest(x, k).tolist(), *more}), dtype=torch.int64)
    kept = index[groups.restrict(index).largest(y[index], k)].tolist()
    assert given_limits.allow(kept)
    hidden = torch.zeros(12).index_copy_(0, index, 1 + y[index].abs())
    inside = groups.largest(hidden, k).tolist()  # nothing outside the index is worth anything
    assert kept == inside


@given(limits(p=12), st.integers(0, 10**6), st.integers(1, 11))
@settings(deadline=None)
def test_blocks_that_choose_apart_meet_the_limits_together(
    given_limits: Limits, seed: int, cut: int
) -> None:
    x, y = torch.randn(2, 12, generator=torch.Generator().manual_seed(seed))
    groups, k = given_limits.groups, given_limits.k
    chosen = torch.zeros(12, dtype=torch.bool).index_fill_(0, groups.largest(x, k), True)
    together = []
    for start, stop in ((0, cut), (cut, 12)):
        part = groups.block(start, stop, chosen[start:stop])
        kept = part.largest(y[start:stop], int(chosen[start:stop].sum()))
        together += (start + kept).tolist()
    assert given_limits.allow(together)


@given(st.lists(st.integers(1, 5), min_size=1, max_size=4), st.integers(1, 6), st.randoms())
def test_blocks_within_a_group_are_free(sizes: list[int], size: int, random: Random) -> None:
    """Wherever the group lies, in a row or not; a block of several groups is not."""
    ids = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    if random.random() < 0.5:
        ids = ids[torch.tensor(random.sample(range(len(ids)), len(ids)))]
    none, every = torch.zeros(len(sizes)).long(), torch.tensor(sizes)
    blocks = [(start, min(start + size, len(ids))) for start in range(0, len(ids), size)]
    alone = all(len(ids[start:stop].unique()) == 1 for start, stop in blocks)
    assert Groups(ids, none, every).free_in(blocks) == alone


@pytest.mark.parametrize(
    ("least", "most"), [([1], [2]), ([1, 1], [2]), ([2, 0], [1, 1]), ([-1, 0], [1, 1])]
)
def test_limits_that_make_no_sense_are_refused(least: list[int], most: list[int]) -> None:
    with pytest.raises(ChitaError, match="least"):
        Groups(torch.tensor([0, 0, 1]), torch.tensor(least), torch.tensor(most))
