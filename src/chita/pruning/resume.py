"""Resume: the file with the finished stages of a run of `chita.prune`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor, nn

from chita.files.atomic import write_whole
from chita.files.resumable import ResumableRun, StoredRun
from chita.files.run_folder import STAGE_FILE
from chita.model.samples.fingerprint import fingerprint
from chita.model.samples.split import NOTHING_HELD_OUT, SampleSplit
from chita.model.samples.stream import Place, SampleStream
from chita.pruning.config import PruneConfig
from chita.pruning.result_rows import StageRow

_HEADER = "chita.stage"  # in the metadata of the file
_DIGEST = "chita.digest"
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
    config: PruneConfig,
    model: nn.Module,
    stream: SampleStream,
    held_out: SampleStream | None,
    sizes: Mapping[str, int],
) -> dict[str, Any]:
    """Return everything comparable that determines the outcome of a run, by name.

    A loss function cannot be compared, nor can data that give other samples in each pass. Of those,
    only the rule that holds samples out is compared, which depends on their content.

    Args:
        config: the options of the run.
        model: the model with its initial weights.
        stream: the stream of samples.
        held_out: the stream of the user's held-out samples, if there are any.
        sizes: n and p.
    """
    tensors = chain(model.named_parameters(), model.named_buffers())
    # A memory budget changes only where A is stored, and sync only the other ranks.
    decisive = {k: value for k, value in asdict(config).items() if k not in ("memory", "sync")}
    return {
        **decisive,
        **sizes,
        "the fingerprint of the model at the start": fingerprint(tensors),
        "the fingerprint of the data": stream.fingerprint(),
        "the fingerprint of held_out": None if held_out is None else held_out.fingerprint(),
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
        # Read the file once. A reader that opens it twice, as safe_open does, may get the header of
        # one stage and the tensors of the next, if a run replaces the file in between.
        content = path.read_bytes()
        tensors = safetensors.torch.load(content)
        header = _checked(_metadata(content), tensors)
        weights, kept = tensors.pop("weights"), tensors.pop("kept")
        finished = FinishedStages(
            weights=weights,
            kept=kept,
            others={name.removeprefix(_OTHER): value for name, value in tensors.items()},
            recovery=header["recovery"],
            rows=[StageRow.from_dict(row) for row in header["rows"]],
            place=tuple(header["place"]),
            search=header["search"],
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
            "run": self.run,
            "stages": self.total,
            "rows": [row.to_dict() for row in finished.rows],
            "place": finished.place,
            "search": finished.search,
            "recovery": finished.recovery,
            "seconds": finished.seconds,
        }
        text = json.dumps(header)
        metadata = {_HEADER: text, _DIGEST: _digest(text, tensors)}
        write_whole(self.path, safetensors.torch.save(tensors, metadata=metadata))


def _metadata(content: bytes) -> dict[str, str]:
    """Return the metadata of a safetensors file: eight bytes with the length of a JSON header."""
    size = int.from_bytes(content[:8], "little")
    metadata: dict[str, str] = json.loads(content[8 : 8 + size])["__metadata__"]
    return metadata


def _digest(header: str, tensors: Mapping[str, Tensor]) -> str:
    """Return a hash of everything in a file: its header and its tensors."""
    text = torch.frombuffer(bytearray(header.encode()), dtype=torch.uint8)
    return fingerprint([(_HEADER, text), *sorted(tensors.items())])


def _checked(metadata: Mapping[str, str], tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    """Return the header of a file, after checking that nothing in the file has changed."""
    header: dict[str, Any] = json.loads(metadata[_HEADER])
    if _digest(metadata[_HEADER], tensors) != metadata[_DIGEST]:
        raise ValueError("the content is not the one that was written")
    return header


def _split_fingerprint(split: SampleSplit) -> str | None:
    if split is NOTHING_HELD_OUT:
        return None
    bounds = torch.tensor(split.bounds, dtype=torch.int64)
    return fingerprint([("bounds", bounds), ("excluded", split.excluded.sort().values)])
