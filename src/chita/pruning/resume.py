"""Resume: the last finished stage of `chita.prune` in a file."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from chita.files.resumable import Kept, KeptRun
from chita.files.run_folder import STAGE_FILE
from chita.files.whole import write_whole
from chita.model.batch import tensors_of
from chita.model.sample_source import NOTHING_HELD_OUT, SampleSplit
from chita.model.stream import Place, SampleStream
from chita.pruning.config import PruneConfig
from chita.pruning.result import StageRow

_HEADER = "chita.stage"  # in the metadata of the file


@dataclass(frozen=True)
class Finished:
    """What the finished stages hand on to the next one and to the result.

    Attributes:
        weights: (p,), of the model's type.
        kept: (p,) bool, the support of the last stage.
        rows: a row for each stage.
        place: where the stream of samples goes on.
        guard: what the next stage's choices go by.
        seconds: what the run has taken so far.
    """

    weights: Tensor
    kept: Tensor
    rows: list[StageRow]
    place: Place
    guard: dict[str, Any]
    seconds: float


def describe_run(
    config: PruneConfig, model: nn.Module, stream: SampleStream, sizes: Mapping[str, int]
) -> dict[str, Any]:
    """All that decides the outcome of a run, as far as it can be told.

    A loss function cannot be compared. Of data that may come in another order each time, only the
    rule that holds samples out is compared: it depends on their content.

    Args:
        config: what was asked for.
        model: with the weights it starts from.
        stream: of the data.
        sizes: n and p.
    """
    first = stream.first()
    tensors = chain(model.named_parameters(), model.named_buffers())
    decisive = {name: value for name, value in asdict(config).items() if name != "memory"}
    return {
        **decisive,  # a budget changes where A is, and nothing else
        **sizes,
        "the fingerprint of the model at the start": fingerprint(tensors),
        "the fingerprint of the data": first and fingerprint(enumerate(tensors_of(first.content))),
        "the fingerprint of the held-out samples": _split_fingerprint(stream.split),
    }


class StageFile(KeptRun[Finished]):
    """The file of one run of `chita.prune`.

    Args:
        folder: made if it is not there.
        run: of `describe_run`; any other run is refused.
        stages: how many the run has.
    """

    file = STAGE_FILE
    part = "stage"

    def __init__(self, folder: Path, *, run: Mapping[str, Any], stages: int) -> None:
        super().__init__(folder, run, stages)

    @classmethod
    def read(cls, path: Path) -> Kept[Finished]:
        with safetensors.safe_open(path, framework="pt") as file:
            header = json.loads(file.metadata()[_HEADER])
            tensors = {name: file.get_tensor(name) for name in ("weights", "kept")}
            if fingerprint(tensors.items()) != header["fingerprint"]:
                raise ValueError("the tensors are not those that were written")
            finished = Finished(
                **tensors,
                rows=[StageRow(**row) for row in header["rows"]],
                place=tuple(header["place"]),
                guard=header["guard"],
                seconds=header["seconds"],
            )
        return Kept(header["run"], header["stages"], finished)

    def write(self, finished: Finished) -> None:
        tensors = {"weights": finished.weights.cpu(), "kept": finished.kept.cpu()}
        header = {
            "fingerprint": fingerprint(tensors.items()),
            "run": self.run,
            "stages": self.total,
            "rows": [asdict(row) for row in finished.rows],
            "place": finished.place,
            "guard": finished.guard,
            "seconds": finished.seconds,
        }
        content = safetensors.torch.save(tensors, metadata={_HEADER: json.dumps(header)})
        write_whole(self.path, content)


def _split_fingerprint(split: SampleSplit) -> str | None:
    if split is NOTHING_HELD_OUT:
        return None
    bounds = torch.tensor(split.bounds, dtype=torch.int64)
    return fingerprint([("bounds", bounds), ("excluded", split.excluded.sort().values)])


def fingerprint(named: Iterable[tuple[str | int, Tensor]]) -> str:
    """Stands for the tensors: their names, types, shapes and values."""
    found = hashlib.sha256()
    for name, tensor in named:
        found.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        found.update(tensor.detach().cpu().reshape(-1).view(torch.uint8).numpy().data)
    return found.hexdigest()[:16]
