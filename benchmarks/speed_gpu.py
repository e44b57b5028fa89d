"""2:4 sparsity compared with dense on a GPU: a Linear layer in half precision, on all backends.

All backends use the same weight, which keeps the two largest of each group of four; the dense layer
multiplies with the zeros. The backends are CUTLASS and cuSPARSELt: with default options, with the
transposition of the result fused into the kernel, and with the algorithm found by its own search.
"row-major" includes a copy of the result into the layout of the dense one, which the next layer may
need. Times come from CUDA events around a few calls; all backends run in each turn. The script
prints the median and the quartiles of the times and of the speedups in each turn. Errors are those
of the outputs relative to a float32 product.

    python benchmarks/speed_gpu.py [--out speed_gpu.json] [--turns 30]

The script needs only PyTorch. If chita is installed, it also prints the choice of
`chita.accelerate`.
"""

from __future__ import annotations

import json
import statistics
import warnings
from argparse import ArgumentParser
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.sparse import SparseSemiStructuredTensor, to_sparse_semi_structured

CASES = [  # tokens, inputs, outputs
    (8192, 8192, 8192),
    (4096, 8192, 8192),
    (1024, 8192, 8192),
    (128, 8192, 8192),
    (8192, 4096, 4096),
    (8192, 2048, 2048),
    (8192, 1024, 1024),
    (16, 8192, 8192),
]
WARM_UP = 10
CALLS = 5  # the number of calls in a turn
CHECKED = 256  # the number of tokens whose outputs are compared

Way = Callable[[], Tensor]


def main() -> None:
    """Run the benchmark and print the results."""
    parser = ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=30)
    parser.add_argument("--dtype", choices=["bfloat16", "float16"], default="bfloat16")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("no GPU found")
    warnings.simplefilter("ignore", UserWarning)  # 2:4 tensors warn that they are a prototype
    dtype = getattr(torch, arguments.dtype)
    name = torch.cuda.get_device_name()
    backend = torch.backends.cusparselt
    version = backend.version() if backend.is_available() else None
    print(f"{name}, torch {torch.__version__}, cuSPARSELt {version}, {arguments.dtype}")
    found = [measure(*case, dtype, arguments.turns) for case in CASES]
    through_chita(dtype)
    if arguments.out is not None:
        record = {"device": name, "torch": torch.__version__, "cusparselt": version, "cases": found}
        arguments.out.write_text(json.dumps(record, indent=2) + "\n")


@torch.no_grad()
def measure(tokens: int, inputs: int, outputs: int, dtype: torch.dtype, turns: int) -> Any:
    """Measure one size on all backends."""
    draw = torch.Generator("cuda").manual_seed(0)
    options: dict[str, Any] = {"device": "cuda", "dtype": dtype, "generator": draw}
    x = torch.randn(tokens, inputs, **options)
    weight = two_of_four(torch.randn(outputs, inputs, **options) / inputs**0.5)
    bias = torch.randn(outputs, **options)
    exact = x[:CHECKED].float() @ weight.float().T + bias.float()
    ways: dict[str, Way] = {"dense": lambda: functional.linear(x, weight, bias)}
    failed = {}
    for name, build in backends(weight, x).items():
        try:
            way = as_way(build(), x, bias)
            way()
        except (RuntimeError, NotImplementedError, ValueError) as error:
            failed[name] = str(error).splitlines()[0]
            continue
        ways[name] = way
        if not way().is_contiguous():
            ways[f"{name}, row-major"] = row_major(way)
    errors = {name: error_of(way()[:CHECKED], exact) for name, way in ways.items()}
    seconds = in_turns(ways, turns)
    print(f"\n{tokens} tokens, {inputs} -> {outputs}")
    for name, found in seconds.items():
        low, median, high = statistics.quantiles(found, n=4)
        gains = statistics.quantiles(
            [dense / own for dense, own in zip(seconds["dense"], found, strict=True)], n=4
        )
        tera = 2 * tokens * inputs * outputs / median / 1e12
        print(
            f"  {name:42} {1e3 * median:8.4f} ms ({1e3 * low:.4f} to {1e3 * high:.4f})  "
            f"{gains[1]:.3f} times dense ({gains[0]:.3f} to {gains[2]:.3f})  "
            f"{tera:6.0f} dense TFLOP/s  error {errors[name]:.1e}"
        )
        if errors[name] > 2 * errors["dense"]:
            print("  ^ WRONG: more than twice the error of dense")
    for name, reason in failed.items():
        print(f"  {name:42} cannot run: {reason}")
    return {
        "tokens": tokens,
        "inputs": inputs,
        "outputs": outputs,
        "seconds": seconds,
        "errors": errors,
        "failed": failed,
    }


def backends(weight: Tensor, x: Tensor) -> dict[str, Callable[[], Tensor]]:
    """Return a function for each backend that creates its 2:4 weight."""

    def plain() -> Tensor:
        return to_sparse_semi_structured(weight)

    def fused() -> Tensor:
        with switched("_FUSE_TRANSPOSE"):
            return to_sparse_semi_structured(weight)

    def searched(make: Callable[[], Tensor]) -> Tensor:
        sparse: Any = make()
        transposed = bool(sparse.fuse_transpose_cusparselt)
        sparse.alg_id_cusparselt = torch._cslt_sparse_mm_search(
            sparse.packed, x.t(), transpose_result=transposed
        )
        found: Tensor = sparse
        return found

    def cutlass() -> Tensor:
        with switched("_FORCE_CUTLASS"):
            return to_sparse_semi_structured(weight)

    return {
        "cuSPARSELt": plain,
        "cuSPARSELt, fused": fused,
        "cuSPARSELt, searched": lambda: searched(plain),
        "cuSPARSELt, fused, searched": lambda: searched(fused),
        "CUTLASS": cutlass,
    }


@contextmanager
def switched(flag: str) -> Iterator[None]:
    """Set a class attribute of PyTorch's 2:4 tensors to True, temporarily."""
    before = getattr(SparseSemiStructuredTensor, flag)
    setattr(SparseSemiStructuredTensor, flag, True)
    try:
        yield
    finally:
        setattr(SparseSemiStructuredTensor, flag, before)


def two_of_four(weight: Tensor) -> Tensor:
    """Keep the two largest of each four neighbours in a row; set the others to zero."""
    groups = weight.view(-1, 4)
    kept = groups.abs().topk(2, dim=1).indices
    return torch.zeros_like(groups).scatter(1, kept, groups.gather(1, kept)).view_as(weight)


def as_way(weight: Tensor, x: Tensor, bias: Tensor) -> Way:
    return lambda: functional.linear(x, weight, bias)


def row_major(way: Way) -> Way:
    return lambda: way().contiguous()


def error_of(found: Tensor, exact: Tensor) -> float:
    """Return the root mean square error relative to that of the outputs."""
    return float((found.float() - exact).norm() / exact.norm())


def in_turns(ways: dict[str, Way], turns: int) -> dict[str, list[float]]:
    """Return the seconds of a call in each turn; every turn runs all ways."""
    for way in ways.values():
        for _ in range(WARM_UP):
            way()
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(turns):
        for name, way in ways.items():
            start = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
            end = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
            torch.cuda.synchronize()
            start.record()
            for _ in range(CALLS):
                way()
            end.record()
            torch.cuda.synchronize()
            seconds[name].append(start.elapsed_time(end) / 1e3 / CALLS)
    return seconds


@torch.no_grad()
def through_chita(dtype: torch.dtype) -> None:
    """Print what `chita.accelerate` chooses for the same layer."""
    try:
        import chita
    except ImportError as error:
        print(f"\nchita cannot be imported here: {error}")
        return
    layer = nn.Linear(8192, 8192, device="cuda", dtype=dtype)
    layer.weight.copy_(two_of_four(layer.weight))
    for tokens in (16, 8192):
        x = torch.randn(tokens, 8192, device="cuda", dtype=dtype)
        print(f"\nchita.accelerate, {tokens} tokens\n{chita.accelerate(layer, x)}")


if __name__ == "__main__":
    main()
