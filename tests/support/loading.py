"""Another process, which loads pruned networks from their files."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

import chita
from chita.deploy.example_input import difference
from chita.model.forward import call, evaluating
from chita.zoo.example import example_inputs
from chita.zoo.given_network import find_network
from chita.zoo.trained import open_trained
from tests.support.timm_models import import_timm

ROOT = Path(__file__).parents[2]


class Loader:
    """A process that loads one network after the other, because the imports take seconds."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.loading"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def difference(
        self, network: str, arguments: Mapping[str, Any], data: str, file: Path, outputs: Path
    ) -> float:
        """How much the outputs of a packed network, loaded there, differ from those in a file."""
        assert self._process.stdin is not None and self._process.stdout is not None
        request = [network, dict(arguments), data, str(file), str(outputs)]
        self._process.stdin.write(f"{json.dumps(request)}\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        assert isinstance(answer, float), answer
        return answer

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert self._process.wait(60) == 0


def load(network: str, arguments: dict[str, Any], data: str, file: str, outputs: str) -> float:
    if network.startswith("timm:"):
        import_timm()
    trained = open_trained(find_network(network, arguments), fresh=True, data_name=data)
    chita.load(file, into=trained.model)
    with torch.no_grad(), evaluating(trained.model):
        found = call(trained.model, example_inputs(trained, 2))
    return difference(found, torch.load(outputs))


if __name__ == "__main__":
    for line in sys.stdin:
        try:
            answer: float | str = load(*json.loads(line))
        except Exception as error:
            answer = repr(error)
        sys.stdout.write(f"{json.dumps(answer)}\n")
        sys.stdout.flush()
