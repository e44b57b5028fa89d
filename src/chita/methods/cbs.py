"""CBS (Yu et al., 2022): find the support by swaps, then update it jointly and exactly.

As in its paper, the gradient of the trained network is assumed to be zero. The rounds of swaps are
few: more rounds lower f on the n samples of A, but no longer the loss of the network.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from chita.curvature.fisher import Fisher
from chita.methods.registry import Method
from chita.methods.surgeon import WithoutFirstOrder
from chita.methods.surgeon_inverse import square_norms
from chita.solver.algorithm import SupportThenUpdate
from chita.solver.constraints.constraint import top_k
from chita.solver.iht_active_set import refine_by_backsolve
from chita.solver.options import Options, Trace
from chita.solver.problem import Iterate, Problem

SEEDS = 10  # perturbed magnitude solutions to start from, besides the plain one
SPREAD = 0.1  # relative size of a perturbation
CANDIDATES = 256  # weights on either side of a round of swaps: their Gram stays small


def swap_support(
    problem: Problem, x: Iterate, options: Options, trace: Trace
) -> tuple[Iterate, bool]:
    """Start from the best magnitude solution and swap weights as long as that lowers f.

    `options.iterations` limits the number of rounds.

    Returns:
        w0 on the support found, and whether the last round found no swap.
    """
    start = problem.unmoved(x.support)
    x = min([start, *perturbed(problem, start, options.seed)], key=lambda point: point.objective)
    trace.history.append(x.objective)
    norms = square_norms(problem.matrix.whole())
    while not trace.spent:
        trace.iterations += 1
        swapped = swap_round(problem, x, norms)
        if swapped is x:
            return x, True
        x = swapped
        trace.history.append(x.objective)
    return x, False


def perturbed(problem: Problem, x: Iterate, seed: int) -> Iterator[Iterate]:
    """Yield magnitude solutions of the size of x, for randomly perturbed magnitudes."""
    generator = torch.Generator().manual_seed(seed)
    w0 = problem.w0
    for _ in range(SEEDS):
        noise = torch.randn(len(w0), generator=generator).to(w0)
        yield problem.unmoved(top_k(w0 * (SPREAD * noise).exp(), len(x.support)))


@dataclass(frozen=True)
class Toggles:
    """The change of f at a point if one weight is pruned or restored.

    Attributes:
        kept: (p,) bool, whether the weight is in the support.
        step: (p,), the change t of the weight.
        change: (p,), the change of f.
    """

    kept: Tensor
    step: Tensor
    change: Tensor

    @classmethod
    def at(cls, problem: Problem, x: Iterate, norms: Tensor) -> Toggles:
        """Compute the changes at x in one pass over A."""
        kept = torch.zeros_like(x.w, dtype=torch.bool).index_fill_(0, x.support, True)
        step = torch.where(kept, -problem.w0, problem.w0)
        change = step * problem.gradient(x) + step.square() * (norms + problem.mu) / 2
        return cls(kept, step, change)

    def best(self, kept: bool) -> Tensor:
        """Return the best weights to prune (kept=True) or to restore, at most CANDIDATES."""
        index = (self.kept == kept).nonzero().squeeze(1)
        least = self.change[index].topk(min(CANDIDATES, len(index)), largest=False)
        return index[least.indices]


def swap_round(problem: Problem, x: Iterate, norms: Tensor) -> Iterate:
    """Return x after as many disjoint swaps as lower f; x itself if there are none."""
    toggles = Toggles.at(problem, x, norms)
    out, back = toggles.best(kept=True), toggles.best(kept=False)
    candidates = torch.cat([out, back])
    columns = problem.matrix.columns(candidates).whole().double()
    step = toggles.step[candidates].double()
    cross = torch.outer(step, step) * (columns @ columns.t())
    # Many tiny steps in sequence, which are fastest on the CPU.
    swaps = disjoint_swaps(toggles.change[candidates].double().cpu(), cross.cpu(), len(out))
    # Rounding errors may have produced wrong changes: check f, and try fewer swaps if it rises.
    while swaps:
        toggled = candidates[torch.tensor(swaps, device=candidates.device).flatten()]
        swapped = toggle(problem, x, toggles, toggled)
        if swapped.objective < x.objective:
            return swapped
        swaps = swaps[: len(swaps) // 2]
    return x


def disjoint_swaps(change: Tensor, cross: Tensor, kept: int) -> list[tuple[int, int]]:
    """Choose swaps greedily, each the one that lowers f most; no candidate is in two of them.

    Args:
        change: the change of f by each candidate alone, (c,); the `kept` ones come first.
        cross: the additional change of each pair, (c, c).
        kept: the number of candidates that are kept weights.

    Returns:
        Pairs of a kept and a pruned candidate, as positions among the candidates.
    """
    swaps: list[tuple[int, int]] = []
    while len(swaps) < min(kept, len(change) - kept):
        together = change[:kept, None] + change[kept:] + cross[:kept, kept:]
        i, j = divmod(int(together.argmin()), len(change) - kept)
        if not together[i, j] < 0:
            break
        swaps.append((i, kept + j))
        change = change + cross[i] + cross[kept + j]
        change[[i, kept + j]] = torch.inf  # no candidate is used twice
    return swaps


def toggle(problem: Problem, x: Iterate, toggles: Toggles, index: Tensor) -> Iterate:
    """Prune or restore the weights at `index`, in a pass over their columns only."""
    step = toggles.step[index]
    w = x.w.index_add(0, index, step)
    kept = toggles.kept.index_copy(0, index, ~toggles.kept[index])
    rho = x.rho + problem.matrix.combine(index, step)
    return Iterate(w, kept.nonzero().squeeze(1), rho, problem.objective(w, rho))


CBS = Method(
    "cbs",
    Fisher,
    WithoutFirstOrder(SupportThenUpdate(swap_support, refine_by_backsolve)),
    options=Options(iterations=8),  # rounds of swaps
    constrained=False,
)
