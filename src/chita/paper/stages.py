"""CHITA++ stage by stage (algorithm 1), with access to each stage and any alpha."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torch import nn

from chita.methods import METHODS
from chita.model.samples.stream import SampleStream
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
    """Yield the network after each stage; it is the same object, changed in place.

    Args:
        subject: the network and its data.
        seed: the seed of the batch norm statistics, of the order of the data and of augmentation.
        sparsities: tau_1 to tau_f, the sparsity of each stage.
        samples: n, the rows of A.
        batch: m, the samples averaged into a row.
        lam: the ridge lambda of all stages.
        alpha: the scale of the first-order term.
        block_size: solve in blocks of at most this size (algorithm 6).
        augment: whether to compute gradients on augmented images.
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
