"""CHITA++ stage by stage (algorithm 1), to look at each and to set alpha freely."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torch import nn

from chita.methods import METHODS
from chita.model.stream import SampleStream
from chita.paper.network_problem import NetworkProblem
from chita.paper.networks import Subject


def run_stages(
    subject: Subject,
    seed: int,
    sparsities: Sequence[float],
    *,
    samples: int,
    batch: int,
    lam: float,
    alpha: float,
    block_size: int | None = None,
    augment: bool = False,
) -> Iterator[nn.Module]:
    """Yield the network after each stage (one and the same, changed in place).

    Args:
        subject: what is pruned.
        seed: of the network's batch norm, the order of the data and their augmentation.
        sparsities: tau_1 to tau_f, one for each stage.
        samples: n.
        batch: m.
        lam: the ridge lambda of all stages.
        alpha: the scale of the first-order term.
        block_size: solve in blocks of at most this size (algorithm 6).
        augment: take gradients on augmented images.
    """
    model = subject.model(seed)
    stream = SampleStream(subject.calibration(seed, augment=augment))
    for sparsity in sparsities:
        problem = NetworkProblem(
            model, subject.network.prunable, lambda: stream, samples=samples, batch=batch
        )
        solution = problem.solve(
            METHODS["chita++"], sparsity=sparsity, lam=lam, alpha=alpha, block_size=block_size
        )
        problem.weights.assign(solution.w)
        yield model
