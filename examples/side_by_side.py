"""Code shared by the examples: their options, and pruning one network by two methods."""

from __future__ import annotations

import argparse
import copy
from collections.abc import Iterator, Sequence
from typing import Any

from torch import nn

import chita


def options(description: str, samples: str) -> argparse.ArgumentParser:
    """Return a parser with the options of both examples; `samples` is a noun for help texts."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--sparsity", type=float, default=0.5)
    parser.add_argument("--batch", type=int, default=16, help=f"{samples} averaged into a row of A")
    parser.add_argument("--include", help="glob of the parameters to prune; default: all layers")
    parser.add_argument("--stages", type=int, help="number of stages; default: that of the method")
    parser.add_argument("--no-recover", action="store_true", help="prune without training")
    return parser


def pruned(
    dense: nn.Module, samples: Sequence[Any], loss: str, given: argparse.Namespace
) -> Iterator[tuple[str, chita.PruneResult]]:
    """Yield a name and a copy of `dense` pruned by magnitude, then by chita's default method."""
    ways: dict[str, dict[str, Any]] = {
        "magnitude": {"method": "magnitude"},
        "chita.prune": {"batch": given.batch, "stages": given.stages},
    }
    if given.no_recover:
        ways["chita.prune"]["recover"] = False
    for name, way in ways.items():
        model = copy.deepcopy(dense)
        keywords = {"sparsity": given.sparsity, "loss": loss, "include": given.include, **way}
        yield name, chita.prune(model, samples, **keywords)
