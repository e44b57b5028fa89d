"""What the examples share: their options, and two methods that prune the same network."""

from __future__ import annotations

import argparse
import copy
from collections.abc import Iterator, Sequence
from typing import Any

from torch import nn

import chita


def options(description: str, samples: str) -> argparse.ArgumentParser:
    """A parser with the options that both examples have; `samples` says what these are."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--sparsity", type=float, default=0.5)
    parser.add_argument("--batch", type=int, default=16, help=f"{samples} in a row of A")
    parser.add_argument("--include", help="glob of the parameters to prune; all layers by default")
    parser.add_argument("--stages", type=int, help="the method's own number by default")
    return parser


def pruned(
    dense: nn.Module, samples: Sequence[Any], loss: str, given: argparse.Namespace
) -> Iterator[tuple[str, chita.PruneResult]]:
    """Copies of `dense` pruned by magnitude and by chita's default method, by name."""
    ways: dict[str, dict[str, Any]] = {
        "magnitude": {"method": "magnitude"},
        "chita.prune": {"batch": given.batch, "stages": given.stages},
    }
    for name, way in ways.items():
        model = copy.deepcopy(dense)
        keywords = {"sparsity": given.sparsity, "loss": loss, "include": given.include, **way}
        yield name, chita.prune(model, samples, **keywords)
