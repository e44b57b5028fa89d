"""Show that two checkouts of chita prune bit-identically.

    python tools/compare_checkouts.py OLD NEW
    python tools/compare_checkouts.py OLD NEW --only magnitude --only obd

Each checkout runs in a process of its own, with one thread. Every method that OLD registers, and
some options, prune the embedded MLPNet on the embedded slice of MNIST at sparsity 0.9 with seed 0;
the SHA-256 digests of the weights and of the masks must agree. NEW must also read a file that OLD
packed, and have all commands and options of OLD. The exit code is 1 if anything differs.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import typer
from safetensors.torch import load_file
from torch import Tensor, nn

import chita
from chita import data, zoo

Report = dict[str, dict[str, Any]]

# All cases are cheap variants: few rows of A, each an average of few samples, and few stages.
COMMON = {"sparsity": 0.9, "seed": 0, "samples": 50, "batch": 8}
STAGES = {"auto": 4, "chita++": 4}
# These methods invert the whole Hessian: they prune one layer of 800 weights, or in blocks.
SMALL: dict[str, dict[str, Any]] = {
    "obs": {"include": "fc2.weight"},
    "cbs": {"include": "fc2.weight"},
    "woodfisher": {"block_size": 500},
    "woodtaylor": {"block_size": 500},
}
OPTIONS: dict[str, dict[str, Any]] = {
    "chita++ solver=cd": {"method": "chita++", "stages": 4, "solver": "cd"},
    "chita++ in coupled blocks": {
        "method": "chita++",
        "stages": 4,
        "block_size": 2000,
        "block_sweeps": 1,
    },
    "chita++ 2:4": {"method": "chita++", "stages": 4, "sparsity": "2:4"},
    "chita++ loss=distill": {"method": "chita++", "stages": 4, "loss": "distill"},
    "chita++ allocation=erk": {"method": "chita++", "stages": 4, "allocation": "erk"},
    "auto min_accuracy=90": {"method": "auto", "stages": 4, "min_accuracy": 90.0},
}


def method_cases(names: list[str]) -> dict[str, dict[str, Any]]:
    """Return the arguments of `chita.prune` for each method."""
    cases: dict[str, dict[str, Any]] = {}
    for name in names:
        cases[name] = {"method": name, **SMALL.get(name, {})}
        if name in STAGES:
            cases[name]["stages"] = STAGES[name]
    return cases


# The functions below run in the process of one checkout and use only names that all have.


def digest(tensors: Mapping[str, Tensor]) -> str:
    """Return the SHA-256 digest of names, types, shapes and bytes."""
    found = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name].detach().contiguous()
        found.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        found.update(tensor.numpy().tobytes())
    return found.hexdigest()


def embedded_network() -> nn.Module:
    """Return the MLPNet that is part of the checkout, trained."""
    model = zoo.get("mlpnet").build()
    assets = Path(chita.__file__).parent / "zoo" / "assets"
    model.load_state_dict(load_file(assets / "mlpnet_mnist.safetensors"))
    return model


def pruned(arguments: Mapping[str, Any]) -> dict[str, str]:
    """Prune the embedded network; return the digests, or the error."""
    model = embedded_network()
    batches = data.Batches(data.load("mnist-slice").train.shuffled(0), 1024)
    try:
        result = chita.prune(model, batches, progress=False, **{**COMMON, **arguments})
    except Exception as error:  # any error is a finding: the other checkout must have none either
        return {"error": f"{type(error).__name__}: {error}"}
    return {"weights": digest(model.state_dict()), "masks": digest(result.masks)}


def loaded(packed: Path) -> dict[str, str]:
    """Return the digest of a packed file; the first checkout writes it."""
    if not packed.exists():
        model = embedded_network()
        chita.prune(model, [], sparsity=0.9, method="magnitude", progress=False)
        chita.save(model, packed)
    try:
        return {"weights": digest(chita.load(packed))}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}


def command_line() -> dict[str, list[str]]:
    """Return the parameters of every command: options by their flags, arguments by name."""
    try:
        module = importlib.import_module("chita.cli.app")
    except ModuleNotFoundError:  # chita.cli was one module before it became a package
        module = importlib.import_module("chita.cli")
    found: dict[str, list[str]] = {}

    def visit(command: Any, path: str) -> None:
        found[path] = []
        for parameter in command.params:
            option = parameter.param_type_name == "option"
            names = (*parameter.opts, *parameter.secondary_opts) if option else (parameter.name,)
            found[path].extend(names)
        for name, inner in getattr(command, "commands", {}).items():
            visit(inner, f"{path} {name}")

    visit(typer.main.get_command(module.app), "chita")
    return found


def examine(request: Mapping[str, Any]) -> Report:
    """Run the cases of the request, or else one for each method and option."""
    torch.set_num_threads(1)
    cases = request["cases"]
    if cases is None:
        names = list(importlib.import_module("chita.methods").METHODS)
        cases = {**method_cases(names), **OPTIONS}
    if request["only"]:
        cases = {name: case for name, case in cases.items() if name in request["only"]}
    digests = {}
    for name, case in cases.items():
        print(f"{request['label']}: {name}", file=sys.stderr, flush=True)
        digests[name] = pruned(case)
    return {
        "cases": cases,
        "digests": digests,
        "packed": loaded(Path(request["packed"])),
        "commands": command_line(),
    }


# The functions below run in the process that compares.


def run_checkout(checkout: Path, request: Mapping[str, Any]) -> Report:
    """Run `examine` with the source of a checkout."""
    source = checkout.resolve() / "src"
    environment = {**os.environ, "PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"}
    process = subprocess.run(
        [sys.executable, __file__, "--examine"],
        input=json.dumps(request),
        stdout=subprocess.PIPE,
        env=environment,
        text=True,
        check=True,
    )
    report: Report = json.loads(process.stdout)
    return report


def verdict(old: Mapping[str, str], new: Mapping[str, str]) -> str:
    """Return "equal", or what differs; an error on both sides shows nothing and is no agreement."""
    errors = [
        f"{side}: {it['error']}" for side, it in (("OLD", old), ("NEW", new)) if "error" in it
    ]
    if errors:
        return "; ".join(errors)
    differing = [part for part in old if old[part] != new[part]]
    return f"{' and '.join(differing)} differ" if differing else "equal"


def compare(old: Report, new: Report) -> dict[str, str]:
    """Return a verdict for each thing compared."""
    verdicts = {name: verdict(old["digests"][name], new["digests"][name]) for name in old["cases"]}
    verdicts["file packed by OLD"] = verdict(old["packed"], new["packed"])
    missing = [
        f"{command} {flag}".strip()
        for command, flags in old["commands"].items()
        for flag in ["", *flags]
        if command not in new["commands"] or (flag and flag not in new["commands"][command])
    ]
    counted = f"{len(old['commands'])} commands"
    verdicts[counted] = f"missing: {', '.join(missing)}" if missing else "equal"
    return verdicts


def main() -> int:
    """Print a table of verdicts; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("old", type=Path, metavar="OLD")
    parser.add_argument("new", type=Path, metavar="NEW")
    parser.add_argument("--only", action="append", default=[], help="a case; may be repeated")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        request: dict[str, Any] = {
            "cases": None,
            "only": arguments.only,
            "packed": str(Path(folder) / "packed.safetensors"),
        }
        old = run_checkout(arguments.old, {**request, "label": "OLD"})
        new = run_checkout(arguments.new, {**request, "label": "NEW", "cases": old["cases"]})
    verdicts = compare(old, new)
    width = max(map(len, verdicts))
    for name, text in verdicts.items():
        print(f"{name:{width}}  {text}")
    return int(any(text != "equal" for text in verdicts.values()))


if __name__ == "__main__":
    if sys.argv[1:] == ["--examine"]:
        json.dump(examine(json.load(sys.stdin)), sys.stdout)
    else:
        sys.exit(main())
