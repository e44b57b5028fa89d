"""Peak memory of pruning a language model block by block.

The script builds a Llama with random weights (by default of the shape of Llama 3.2 1B), prunes it
on random tokens, and prints the time, the peak memory of the process and the bytes of its weights.

    python benchmarks/block_by_block.py --samples 8 --length 64
    python benchmarks/block_by_block.py --blocks 4 --dtype float32 --memory 6GB --method sparsegpt

The default method, which the script registers, keeps the weights with the largest w^2 M_ii, where
M is the second moment of the inputs, and does not move them: its solves cost little beside the
forward passes.
"""

from __future__ import annotations

import argparse
import logging
from time import perf_counter

import torch
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

import chita
from chita.curvature import BlockInputs
from chita.solver.algorithm import Layout
from chita.solver.matrix.memory import format_bytes, peak_memory_bytes
from chita.solver.options import Options, Trace
from chita.solver.problem import Iterate, Problem


class Diagonal:
    """OBD with the second moments of a layer's inputs as its Hessian."""

    def run(
        self, problem: Problem, k: int, layout: Layout, options: Options, trace: Trace
    ) -> tuple[Iterate, bool]:
        """Keep the k weights of a layer with the largest statistic, unmoved."""
        (moment,) = problem.moments
        size = moment.diagonal(dim1=1, dim2=2).sqrt().to(problem.w0.dtype)  # (groups, i)
        scores = problem.w0.view(len(size), -1, size.shape[1]) * size[:, None]
        point = problem.unmoved(problem.largest(scores.flatten(), k))
        trace.history.append(point.objective)
        return point, True


def build(given: argparse.Namespace) -> nn.Module:
    """Return the model, in the type in which its weights are created."""
    config = LlamaConfig(
        vocab_size=128_256,
        hidden_size=2048,
        intermediate_size=8192,
        num_hidden_layers=given.blocks,
        num_attention_heads=32,
        num_key_value_heads=8,
        tie_word_embeddings=True,
    )
    before = torch.get_default_dtype()
    torch.set_default_dtype(getattr(torch, given.dtype))
    try:
        torch.manual_seed(0)
        model: nn.Module = LlamaForCausalLM(config)  # type: ignore[no-untyped-call]
        return model.eval()
    finally:
        torch.set_default_dtype(before)


def main() -> None:
    """Prune the model, and print what that takes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--blocks", type=int, default=16)
    parser.add_argument("--samples", type=int, default=8)
    parser.add_argument("--length", type=int, default=64, help="tokens in a sequence")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--method", default="diagonal")
    parser.add_argument("--sparsity", default="0.5", help="a number, or a pattern such as 2:4")
    parser.add_argument("--memory")
    given = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    chita.register_method(chita.Method("diagonal", BlockInputs, Diagonal()))
    model = build(given)
    parameters = sum(p.numel() for p in model.parameters())
    size = sum(p.numel() * p.element_size() for p in model.parameters())
    device = torch.device("cpu")
    print(f"{parameters / 1e9:.2f} B parameters, {format_bytes(size)} in {given.dtype}", flush=True)
    print(f"peak before pruning: {format_bytes(peak_memory_bytes(device))}", flush=True)
    tokens = torch.randint(0, 128_256, (given.samples, given.length))
    batches = [{"input_ids": row[None], "labels": row[None]} for row in tokens]
    began = perf_counter()
    result = chita.prune(
        model,
        batches,
        sparsity=given.sparsity if ":" in given.sparsity else float(given.sparsity),
        method=given.method,
        ridge=0.01,
        batch=1,
        memory=given.memory,
    )
    seconds = perf_counter() - began
    print(f"{result.sparsity:.2%} of {result.weights:,} weights are zero, {seconds:.0f} s")
    print(f"forward passes {result.seconds.gradients:.0f} s, solves {result.seconds.solve:.0f} s")
    print(f"peak memory: {format_bytes(result.peak_memory_bytes)}")


if __name__ == "__main__":
    main()
