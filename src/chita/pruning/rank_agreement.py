"""Check that the ranks that share a run have the same options, weights and samples."""

from __future__ import annotations

from dataclasses import asdict

from chita.errors import ChitaError
from chita.methods import methods_where
from chita.model.weights import Weights
from chita.pruning.config import PruneConfig
from chita.pruning.resume import fingerprint
from chita.pruning.supports import Supports
from chita.solver.problem import NOT_SHARED
from chita.solver.ranks import ALONE, Ranks


def agreed_ranks(
    ranks: Ranks, config: PruneConfig, supports: Supports, weights: Weights, *, n: int
) -> Ranks:
    """Return the ranks that share A; without gradients, each rank does all the work.

    Args:
        ranks: all ranks.
        config: the options of this rank.
        supports: the supports that the run allows.
        weights: the prunable weights of the model.
        n: the rows of A.

    Raises:
        ChitaError: the ranks cannot share A, or their options differ.
    """
    method, size = config.resolve_method(), ranks.size
    if size == 1:
        return ALONE
    if not method.curvature.uses_gradients:
        if config.recovers:  # the ranks share the batches of the training
            _check_same(ranks, config, weights, n)
        return ALONE
    if not method.streams:
        raise ChitaError(
            f"method {method.name!r} runs in one process, but there are {size} ranks; "
            f"{methods_where(lambda method: method.streams)} share the work"
        )
    if not supports.any:
        raise ChitaError(NOT_SHARED.format(size))
    _check_same(ranks, config, weights, n)
    if n < size:
        raise ChitaError(f"samples={n} rows are too few for {size} ranks")
    return ranks


def _check_same(ranks: Ranks, config: PruneConfig, weights: Weights, n: int) -> None:
    """Raise a ChitaError if the options, the weights or the rows of A differ between the ranks."""
    found = fingerprint([("weights", weights.vector())])
    own = {**asdict(config), "n": n, "the fingerprint of the weights": found}
    first = ranks.from_first(lambda: own)
    differences = [
        f"{name} is {first[name]!r} on rank 0, {own[name]!r} on rank {ranks.rank}"
        for name in own
        if own[name] != first[name]
    ]
    if not ranks.all(not differences):
        raise ChitaError(
            f"the ranks differ: {'; '.join(differences) or 'another rank has other arguments'}; "
            "give all ranks the same arguments, weights and number of samples"
        )
