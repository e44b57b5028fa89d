"""A case to measure: a network of the zoo with random weights and images, or a random A.

Costs do not depend on the values, so a case needs neither trained weights nor data.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from chita import zoo
from chita.curvature.fisher import gradient_matrix
from chita.model.samples.stream import SampleStream
from chita.model.weights import Weights
from chita.pruning.config import kept_weights
from chita.solver.algorithm import Layout
from chita.solver.division import Division
from chita.solver.matrix.in_memory import HeldTarget, Store
from chita.solver.matrix.memory import ENTRY
from chita.solver.matrix.shared import SharedTarget
from chita.solver.ranks import Ranks
from chita.zoo.training import initialise

WORKSPACE = 1.5  # the memory that a run needs, as a multiple of A
IMAGES = {
    "mlpnet": (1, 28, 28),
    "resnet20": (3, 32, 32),
    "mobilenetv1": (3, 224, 224),
    "resnet50": (3, 224, 224),
}


@dataclass(frozen=True)
class Case:
    """One size of the problem; it is part of the key of a cell.

    Attributes:
        axis: the quantity that varies: "p", "n", "k" or "ranks".
        network: a key of IMAGES; None for a random A.
        p: the number of prunable weights.
        n: the rows of A, each the gradient of one image.
        sparsity: the share of the weights to prune.
        block_size: the block size of an additional solve in blocks; None for no such solve.
        ranks: the number of processes.
    """

    axis: str
    network: str | None
    p: int
    n: int
    sparsity: float = 0.9
    block_size: int | None = None
    ranks: int = 1

    @property
    def k(self) -> int:
        """The number of kept weights."""
        return kept_weights(self.p, self.sparsity)

    @property
    def matrix_bytes(self) -> int:
        """The size of A on all ranks together, in bytes."""
        return self.p * self.n * ENTRY

    @property
    def needed_bytes(self) -> int:
        """The free memory that the case requires, in bytes."""
        return int(WORKSPACE * self.matrix_bytes)


@dataclass(frozen=True)
class Made:
    """The part of a case that belongs to one rank.

    Attributes:
        w0: the weights of its columns.
        layout: the layout of its columns, without blocks.
        stored: computes its columns of A, (columns, n).
    """

    w0: Tensor
    layout: Layout
    stored: Callable[[], Tensor]


def prunable_weights(network: str) -> int:
    """Return p, the number of prunable weights, of a network of the zoo."""
    with torch.device("meta"):
        return Weights(zoo.get(network).build(), zoo.get(network).prunable).size


def make(case: Case, ranks: Ranks, device: torch.device) -> Made:
    """Prepare the part of a case that belongs to a rank."""
    if case.network is None:
        return _random(case, ranks, device)
    return _of_network(case, zoo.get(case.network), IMAGES[case.network], ranks, device)


def _random(case: Case, ranks: Ranks, device: torch.device) -> Made:
    """Draw A with normal entries and rows of length about 1, as trained networks have."""
    draw = torch.Generator(device).manual_seed(ranks.rank)
    layout = Division(ranks, Layout((case.p,))).layout
    shape = (sum(layout.layers), case.n)

    def stored() -> Tensor:
        return torch.randn(shape, generator=draw, device=device).mul_(case.p**-0.5)

    return Made(torch.randn(shape[0], generator=draw, device=device), layout, stored)


def _of_network(
    case: Case,
    network: zoo.Network,
    shape: tuple[int, ...],
    ranks: Ranks,
    device: torch.device,
) -> Made:
    """Build the network and the images, which are the same on all ranks."""
    draw = torch.Generator(device).manual_seed(0)
    model = network.build().to(device)
    initialise(model, draw)
    weights = Weights(model, network.prunable)
    images = torch.randn(case.n, *shape, generator=draw, device=device)
    assert network.classes is not None  # a network of the zoo
    labels = torch.randint(network.classes, (case.n,), generator=draw, device=device)
    division = Division(ranks, Layout(weights.sizes))
    counts = division.rows(case.n)
    store: Store = HeldTarget
    if ranks.size > 1:
        store = partial(SharedTarget, ranks=ranks, bounds=division.bounds, counts=counts)

    def gradients() -> Tensor:
        stream = SampleStream([(images, labels)])
        stream.skip(sum(counts[: ranks.rank]))
        rows = counts[ranks.rank]
        found = gradient_matrix(model, weights, stream, rows=rows, batch=1, store=store)
        return found.matrix.whole()

    return Made(division.part(weights.vector()), division.layout, gradients)
