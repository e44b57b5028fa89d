"""Resume: the file with the finished stages of a run of `chita.prune`."""

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

from chita.files.atomic import write_whole
from chita.files.resumable import ResumableRun, StoredRun
from chita.files.run_folder import STAGE_FILE
from chita.model.batch import tensors_of
from chita.model.sample_source import NOTHING_HELD_OUT, SampleSplit
from chita.model.sample_stream import Place, SampleStream
from chita.pruning.config import PruneConfig
from chita.pruning.result_rows import StageRow

_HEADER = "chita.stage"  # in the metadata of the file
_OTHER = "other."  # the prefix of the names of other tensors


@dataclass(frozen=True)
class FinishedStages:
    """The state of a run after some stages.

    Attributes:
        weights: the current weights, (p,), in the data type of the model.
        kept: the support of the last accepted stage, (p,) bool.
        others: with recovery, all other parameters and buffers by name.
        recovery: the plan of the training, if there is one.
        rows: a row for each stage.
        place: the position in the stream of samples.
        search: the state of the candidate search.
        seconds: the time of the run so far.
    """

    weights: Tensor
    kept: Tensor
    others: dict[str, Tensor]
    recovery: dict[str, Any] | None
    rows: list[StageRow]
    place: Place
    search: dict[str, Any]
    seconds: float


def describe_run(
    config: PruneConfig, model: nn.Module, stream: SampleStream, sizes: Mapping[str, int]
) -> dict[str, Any]:
    """Return everything comparable that determines the outcome of a run, by name.

    A loss function cannot be compared. If the data may come in another order each time, only the
    rule that holds samples out is compared, which depends on their content.

    Args:
        config: the options of the run.
        model: the model with its initial weights.
        stream: the stream of samples.
        sizes: n and p.
    """
    first = stream.first()
    tensors = chain(model.named_parameters(), model.named_buffers())
    decisive = {name: value for name, value in asdict(config).items() if name != "memory"}
    return {
        **decisive,  # a memory budget changes only where A is stored
        **sizes,
        "the fingerprint of the model at the start": fingerprint(tensors),
        "the fingerprint of the data": first and fingerprint(enumerate(tensors_of(first.content))),
        "the fingerprint of the held-out samples": _split_fingerprint(stream.split),
    }


class StageFile(ResumableRun[FinishedStages]):
    """The file of one run of `chita.prune`.

    Args:
        folder: the folder; created if it does not exist.
        run: the description of the run, from `describe_run`; any other run is refused.
        stages: the number of stages of the run.
    """

    file = STAGE_FILE
    part = "stage"

    def __init__(self, folder: Path, *, run: Mapping[str, Any], stages: int) -> None:
        super().__init__(folder, run, stages)

    @classmethod
    def read(cls, path: Path) -> StoredRun[FinishedStages]:
        with safetensors.safe_open(path, framework="pt") as file:
            header = json.loads(file.metadata()[_HEADER])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            if fingerprint(sorted(tensors.items())) != header["fingerprint"]:
                raise ValueError("the tensors are not those that were written")
            weights, kept = tensors.pop("weights"), tensors.pop("kept")
            finished = FinishedStages(
                weights=weights,
                kept=kept,
                others={name.removeprefix(_OTHER): value for name, value in tensors.items()},
                recovery=header["recovery"],
                rows=[StageRow.from_dict(row) for row in header["rows"]],
                place=tuple(header["place"]),
                search=header["guard"],
                seconds=header["seconds"],
            )
        return StoredRun(header["run"], header["stages"], finished)

    def write(self, finished: FinishedStages) -> None:
        tensors = {
            "weights": finished.weights.cpu(),
            "kept": finished.kept.cpu(),
            **{_OTHER + name: value.contiguous() for name, value in finished.others.items()},
        }
        header = {
            "fingerprint": fingerprint(sorted(tensors.items())),
            "run": self.run,
            "stages": self.total,
            "rows": [row.to_dict() for row in finished.rows],
            "place": finished.place,
            "guard": finished.search,
            "recovery": finished.recovery,
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
    """Return a hash of the names, data types, shapes and values of tensors."""
    found = hashlib.sha256()
    for name, tensor in named:
        found.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        found.update(tensor.detach().cpu().reshape(-1).view(torch.uint8).numpy().data)
    return found.hexdigest()[:16]
