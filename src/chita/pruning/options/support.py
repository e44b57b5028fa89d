"""The options of `chita.prune` on which weights may be pruned: patterns and layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from chita.errors import PATTERNS, are_patterns, are_shares, is_bool
from chita.pruning.allocation import GLOBAL, RULES
from chita.pruning.options.declaration import either, must_be, option
from chita.pruning.options.text import read_shares, read_text
from chita.solver.constraints.pattern import parse_pattern

patterns = must_be(are_patterns, PATTERNS)
_SHARES = "a dict of glob patterns of parameter names to sparsities in [0, 1)"


@dataclass(frozen=True)
class SupportOptions:
    """The options on patterns and layers."""

    pattern: str | None = option(
        None,
        "Pattern of kept weights: tiles of outputs x inputs, such as 4x1, that are kept or "
        "removed as a whole, or N:M.",
        lambda name, value: parse_pattern(value),
        panel="Goal",
        details="With N:M and a numeric `sparsity` below that of the pattern, every group of M "
        "keeps at least N. The inputs of a convolution are the positions of its kernel times "
        "its channels, with the channels of a position side by side.",
    )
    strict: bool = option(
        False,
        "Fail if the pattern does not divide a weight; by default such a weight stays dense, "
        "with a warning.",
        must_be(is_bool, "True or False"),
        panel="Goal",
    )
    include: Sequence[str] | str | None = option(
        None,
        "Glob pattern(s) of the names of the parameters to prune.",
        patterns,
        panel="Layers",
        details="By default the weights of Linear and convolution layers and of attention "
        "projections that are not shared with an embedding.",
        read=read_text,
        repeatable=True,
    )
    exclude: Sequence[str] | str | None = option(
        None,
        "Glob pattern(s) of the names of parameters not to prune.",
        patterns,
        panel="Layers",
        read=read_text,
        repeatable=True,
    )
    allocation: str | Mapping[str, float] = option(
        GLOBAL,
        "How the zeros are shared among the layers: global (the method decides), uniform (the "
        "same sparsity in each) or erk (small layers are denser).",
        must_be(either(RULES, are_shares), f"one of {list(RULES)}, or {_SHARES}"),
        panel="Layers",
        details="Also a dict of glob patterns of parameter names to sparsities: the last "
        "pattern that matches a layer counts, and the other layers share the remaining zeros. "
        "The stages approach these sparsities in proportion.",
        read=read_text,
    )
    at_least: Mapping[str, float] | None = option(
        None,
        "Lowest sparsity of single layers, by glob pattern of parameter names.",
        must_be(are_shares, _SHARES),
        panel="Layers",
        read=read_shares,
        repeatable=True,
        metavar="GLOB=SPARSITY",
    )
    at_most: Mapping[str, float] | None = option(
        None,
        "Highest sparsity of single layers, by glob pattern of parameter names; 0 means dense.",
        must_be(are_shares, _SHARES),
        panel="Layers",
        details="The weights of these layers count towards `sparsity`, unlike those of `exclude`.",
        read=read_shares,
        repeatable=True,
        metavar="GLOB=SPARSITY",
    )
