"""Packed files: their size, the speed of saving and loading, and the handling of damaged files.

Sizes include all tensors of a network and are relative to the dense safetensors file. The bound is
the entropy of the supports plus uncompressed float32 values, without a header: a code that
compresses only the zeros cannot be smaller. Packed files can be smaller because they also compress
the exponents of the weights.

Weights are those of the shared checkpoints if they exist; otherwise they are random, and so are the
statistics of batch norm, because constant tensors would compress too well. The smallest weights are
set to zero.

    python benchmarks/packed.py [--damaged 10000]
"""

from __future__ import annotations

import math
import random
import re
import tempfile
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from time import perf_counter, process_time

import torch
from torch import Tensor, nn

import chita
from chita import zoo
from chita.errors import ChitaError
from chita.files.checkpoint import load_checkpoint, save_checkpoint
from chita.files.packed.container import assemble, take_apart
from chita.files.packed.planes import PATTERNS, deflate, inflate
from chita.files.packed.read import unpack
from chita.files.packed.write import pack
from chita.model.weights import Weights

SHARED = Path(__file__).parents[1] / "../shared/checkpoints"
NETWORKS = (  # the network and its checkpoint; None for random weights
    ("resnet20", "resnet20_cifar10"),
    ("resnet20", None),
    ("mobilenetv1", None),
    ("mobilenetv1-folded", "mobilenetv1_imagenet_folded"),
)
SPARSITIES = (0.0, 0.5, 0.9, 0.98)
TURNS = 15  # the number of runs; the fastest counts, since the machine may be busy
SLOW = 5.0  # the limit for reading a small file, in seconds
MOST_TIMES = 8192  # the limit of tensor bytes for each byte of a file


def main() -> None:
    """Run the benchmark and print the results."""
    parser = ArgumentParser(description="Size, speed and robustness of packed files.")
    parser.add_argument("--damaged", type=int, default=10_000, help="number of damaged files")
    arguments = parser.parse_args()
    print("network                  sparsity   ratio   bound   save MB/s (CPU)  load MB/s (CPU)")
    for network, checkpoint in NETWORKS:
        path = SHARED / f"{checkpoint}.safetensors"
        if checkpoint is None or path.exists():
            measure(network, path if checkpoint else None)
    damage(arguments.damaged)


def measure(network: str, checkpoint: Path | None) -> None:
    """Print a line for each sparsity: the ratio of the file sizes, and dense megabytes a second."""
    known = zoo.get(network)
    model = known.build()
    randomise(model)
    if checkpoint is not None:
        load_checkpoint(model, checkpoint)
    weights = Weights(model, known.prunable)
    with tempfile.TemporaryDirectory() as folder:
        dense, packed = Path(folder) / "dense.safetensors", Path(folder) / "packed.safetensors"
        for sparsity in SPARSITIES:
            prune_smallest(weights, sparsity)
            save_checkpoint(model, dense)
            size = dense.stat().st_size
            saving = seconds(lambda: chita.save(model, packed))
            loading = seconds(lambda: chita.load(packed, into=model))
            ratio, least = packed.stat().st_size / size, bound(model, weights, sparsity) / size
            rates = [
                f"{size / 1e6 / wall:7.0f} ({size / 1e6 / cpu:5.0f})"
                for wall, cpu in (saving, loading)
            ]
            label = f"{network}, {'random' if checkpoint is None else 'trained'}"
            print(f"{label:27s} {sparsity:5.2f} {ratio:7.4f} {least:7.4f}  {'  '.join(rates)}")


def randomise(model: nn.Module) -> None:
    """Set all vectors to normal numbers; matrices and kernels keep their initial values."""
    generator = torch.Generator().manual_seed(0)
    for tensor in model.state_dict().values():
        if tensor.dim() == 1:
            tensor.normal_(generator=generator)


def prune_smallest(weights: Weights, sparsity: float) -> None:
    """Set this share of the weights to zero, the smallest over all layers."""
    vector = weights.vector()
    smallest = vector.abs().argsort()[: round(sparsity * weights.size)]
    vector[smallest] = 0.0
    weights.assign(vector)


def bound(model: nn.Module, weights: Weights, sparsity: float) -> float:
    """Return the bytes of the supports' entropy, of float32 kept weights and of other tensors."""
    shares = [share for share in (sparsity, 1 - sparsity) if share]
    entropy: float = -sum(share * math.log2(share) for share in shares)
    everything: int = sum(tensor.nbytes for tensor in model.state_dict().values())
    rest = everything - 4 * weights.size
    return rest + weights.size * ((1 - sparsity) * 4 + entropy / 8)


def seconds(work: Callable[[], object]) -> tuple[float, float]:
    """Return the least wall-clock time and the least CPU time of several runs."""
    walls, processors = [], []
    for _ in range(TURNS):
        began, began_cpu = perf_counter(), process_time()
        work()
        walls.append(perf_counter() - began)
        processors.append(process_time() - began_cpu)
    return min(walls), min(processors)


def damage(files: int) -> None:
    """Read damaged files and count the outcomes; exit with an error if any is a fault."""
    generator = torch.Generator().manual_seed(0)
    state = {
        "dense.weight": torch.randn(8, 9, generator=generator),
        "sparse.weight": torch.randn(40, 50, generator=generator).mul_(
            torch.rand(40, 50, generator=generator) < 0.03
        ),
        "masked.weight": torch.randn(40, 50, generator=generator).relu().bfloat16(),
        "steps": torch.tensor(7),
    }
    content = pack(state)
    draw = random.Random(0)
    outcomes: Counter[str] = Counter()
    slowest = 0.0
    for turn in range(files):
        kind = KINDS[turn % len(KINDS)]
        damaged = kind(content, draw)
        began = perf_counter()
        outcomes[f"{kind.__name__:24s} {outcome(damaged, state, forged=kind is forge)}"] += 1
        slowest = max(slowest, perf_counter() - began)
    print(f"\n{files} damaged files of {len(content)} bytes, the slowest read in {slowest:.3f} s")
    for name, count in sorted(outcomes.items()):
        print(f"{count:7d}  {name}")
    if slowest > SLOW or any("FAULT" in name for name in outcomes):
        raise SystemExit("a damaged file was not handled correctly")


def outcome(content: bytes, state: Mapping[str, Tensor], *, forged: bool) -> str:
    """Return the outcome: refused, read as it was, or a fault.

    A file forged with a valid digest may contain other tensors.
    """
    try:
        _, tensors = unpack(content)
    except ChitaError:
        return "refused"
    except BaseException as error:
        return f"FAULT: {type(error).__name__}"
    if forged:
        size = sum(tensor.nbytes for tensor in tensors.values())
        return "read" if size <= MOST_TIMES * len(content) else "FAULT: too large"
    alike = tensors.keys() == state.keys() and all(
        torch.equal(tensor.view(torch.uint8), tensors[name].view(torch.uint8))
        if tensor.dim()
        else torch.equal(tensor, tensors[name])
        for name, tensor in state.items()
    )
    return "read as it was" if alike else "FAULT: other tensors"


def flip_bits(content: bytes, draw: random.Random) -> bytes:
    """Flip one to four random bits."""
    damaged = bytearray(content)
    for _ in range(draw.randint(1, 4)):
        damaged[draw.randrange(len(damaged))] ^= 1 << draw.randrange(8)
    return bytes(damaged)


def cut(content: bytes, draw: random.Random) -> bytes:
    """Return a random prefix."""
    return content[: draw.randrange(len(content))]


def shift(content: bytes, draw: random.Random) -> bytes:
    """Remove, insert or repeat some bytes."""
    start, length = draw.randrange(len(content)), draw.randint(1, 64)
    new = draw.choice(
        (b"", draw.randbytes(draw.randint(1, 64)), content[start : start + length] * 2)
    )
    return content[:start] + new + content[start + length :]


def edit_header(content: bytes, draw: random.Random) -> bytes:
    """Change the header and adjust its stated length."""
    length = int.from_bytes(content[:8], "little")
    text = edit_json(content[8 : 8 + length].decode(), draw).encode()
    return len(text).to_bytes(8, "little") + text + content[8 + length :]


def forge(content: bytes, draw: random.Random) -> bytes:
    """Change a part and compute a matching digest."""
    found = take_apart(content)
    parts = [bytes(found.directory), bytes(found.supports), bytes(found.values)]
    target = draw.randrange(3)
    if target == 0:
        text = edit_json(inflate(found.directory, 10**6).decode(), draw)
        parts[0] = deflate(text.encode(), PATTERNS)
    else:
        parts[target] = draw.choice((flip_bits, shift))(parts[target], draw)
    return assemble(*parts)


def edit_json(text: str, draw: random.Random) -> str:
    """Replace a random number, string or character."""
    token = draw.choice((r"\d+", r'"[^"]*"', r"."))
    match = draw.choice(list(re.finditer(token, text)))
    near = str(draw.randrange(2000))
    new = draw.choice(
        (near, "-1", "1e9", "9" * 20, "9" * 5000, "null", "[]", "{}", '"F64"', ",", "")
    )
    return text[: match.start()] + new + text[match.end() :]


KINDS = (flip_bits, cut, shift, edit_header, forge)


if __name__ == "__main__":
    main()
