"""Layer-wise pruning of a language model: error and time of every method on every layer.

The inputs of a layer are those of the dense model on the given text. The error is |X (W - W')|^2 of
the pruned weights W', relative to that of chita-layer, and the time is relative to that of
SparseGPT. A layer on which another method has the smaller error is marked with a star.

    python benchmarks/layer_wise.py FOLDER --text wiki.valid.txt --sparsity 0.5 0.7 2:4
    python benchmarks/layer_wise.py FOLDER --gguf FILE.gguf --text wiki.valid.txt \
        --layers "model.layers.9.*" --device cuda
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer

from chita.curvature.layer_inputs import input_moments
from chita.deploy.timing import timed
from chita.methods import get_method
from chita.model.samples.stream import SampleStream
from chita.model.weights import Weights
from chita.solver.constraints.constraint import ANY_SUPPORT, Constraint
from chita.solver.constraints.pattern import parse_pattern
from chita.solver.layer_wise.each_layer import EachLayer
from chita.solver.layer_wise.layer import Layer
from chita.solver.options import Options

METHODS = ("chita-layer", "alps", "sparsegpt", "wanda", "ria")


@torch.no_grad()
def main() -> None:
    """Run the benchmark and print a line for each layer and sparsity."""
    parser = ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="folder of a causal language model")
    parser.add_argument("--gguf", help="name of a GGUF file in the folder")
    parser.add_argument("--text", type=Path, required=True, help="text to calibrate on")
    parser.add_argument("--sequences", type=int, default=32)
    parser.add_argument("--context", type=int, default=512)
    parser.add_argument("--layers", default="*_proj.weight", help="glob of the weights to prune")
    parser.add_argument("--sparsity", nargs="+", default=["0.5", "0.7"])
    parser.add_argument("--device", default="cpu")
    given = parser.parse_args()
    for name, w, moment in layers(given):
        for sparsity in given.sparsity:
            print(
                f"{sparsity} {name} {tuple(w.shape)}: {compared(w, moment, sparsity)}", flush=True
            )


def layers(given: Namespace) -> Iterator[tuple[str, Tensor, Tensor]]:
    """Yield the name, the weight and the moments of the inputs of each layer."""
    extra: dict[str, Any] = {} if given.gguf is None else {"gguf_file": given.gguf}
    model = AutoModelForCausalLM.from_pretrained(given.folder, dtype=torch.float32, **extra)
    model = model.to(given.device).eval()
    tokenizer = AutoTokenizer.from_pretrained(given.folder, **extra)
    tokens = tokenizer(given.text.read_text(), return_tensors="pt").input_ids[0]
    tokens = tokens[: given.sequences * given.context].view(given.sequences, given.context)
    batches = [{"input_ids": row[None], "labels": row[None]} for row in tokens]
    weights = Weights(model, given.layers)
    found = input_moments(model, weights, SampleStream(batches), samples=given.sequences)
    for weight, moment in zip(weights, found.moments, strict=True):
        yield weight.name, weight.parameter, moment


def compared(w: Tensor, moment: Tensor, sparsity: str) -> str:
    """Return the errors and times of all methods on a layer, as text."""
    k, constraint = supports(w, sparsity)
    errors, seconds = {}, {}
    for name in METHODS:
        method = get_method(name)
        assert isinstance(method.algorithm, EachLayer) and method.ridge is not None
        # A layer of its own, so that no method profits from the factors of another.
        layer = Layer.build(w.flatten(), moment, lam=method.ridge, k=k, constraint=constraint)
        prune = method.algorithm.prune
        found, seconds[name] = timed(partial(prune, layer, Options()), w.device)
        change = found.w[0].double() - w.double()
        errors[name] = float(((change @ moment[0]) * change).sum())
    ours, unit = errors[METHODS[0]], seconds["sparsegpt"]
    parts = [f"{n} {errors[n] / ours:.4f} ({seconds[n] / unit:.2f} x)" for n in METHODS]
    return ", ".join(parts) + (" *" if ours > min(errors.values()) else "")


def supports(w: Tensor, sparsity: str) -> tuple[int, Constraint]:
    """Return the number of weights to keep and the allowed supports for "0.5" or "2:4"."""
    if ":" not in sparsity:
        return w.numel() - int(float(sparsity) * w.numel()), ANY_SUPPORT
    pattern = parse_pattern(sparsity)
    places = pattern.cut(torch.arange(w.numel(), device=w.device).view(w.shape))
    ids = torch.empty_like(places.flatten())
    ids[places] = torch.arange(len(places), device=w.device)[:, None].expand_as(places)
    return pattern.kept(w.numel(), 0), pattern.constraint(ids)


if __name__ == "__main__":
    main()
