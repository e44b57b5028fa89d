"""Resume: the last finished stage in a file, after which a run that was killed goes on.

One file holds all that the next stage needs of those before it. It is replaced at once and whole,
so that a kill at any moment leaves one finished stage or the next, never a mixture.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from chita.batches import Place, SampleStream, tensors_of
from chita.config import PruneConfig
from chita.errors import ChitaError
from chita.files import sweep, write_whole
from chita.output import prepare_folder
from chita.result import StageRow

logger = logging.getLogger(__name__)

STAGE_FILE = "stage.safetensors"
_HEADER = "chita.stage"  # in the metadata of the file


@dataclass(frozen=True)
class Finished:
    """What the finished stages hand on to the next one and to the result.

    Attributes:
        weights: (p,), of the model's type.
        kept: (p,) bool, the support of the last stage.
        rows: a row for each stage.
        place: where the stream of samples goes on.
        ridge_step: the last choice of the ridge search.
        seconds: what the run has taken so far.
    """

    weights: Tensor
    kept: Tensor
    rows: list[StageRow]
    place: Place
    ridge_step: int | None
    seconds: float


def describe_run(
    config: PruneConfig, model: nn.Module, stream: SampleStream, sizes: Mapping[str, int]
) -> dict[str, Any]:
    """All that decides the outcome of a run, as far as it can be told.

    A loss function cannot be compared, nor can data that may come in another order each time.

    Args:
        config: what was asked for.
        model: with the weights it starts from.
        stream: of the data.
        sizes: n and p.
    """
    first = stream.first()
    tensors = chain(model.named_parameters(), model.named_buffers())
    return {
        **asdict(config),
        **sizes,
        "the fingerprint of the model at the start": fingerprint(tensors),
        "the fingerprint of the data": first and fingerprint(enumerate(tensors_of(first.content))),
    }


class StageFile:
    """The file of one run.

    Args:
        folder: made if it is not there.
        run: of `describe_run`; any other run is refused.
        stages: how many the run has.
    """

    def __init__(self, folder: Path, *, run: Mapping[str, Any], stages: int) -> None:
        self._path = folder / STAGE_FILE
        self._run: dict[str, Any] = json.loads(json.dumps(run))  # tuples as they will come back
        self._stages = stages

    def begin(self, *, resume: bool) -> Finished | None:
        """The stages to go on after, if there are any and that is what `resume` asks for.

        Raises:
            ChitaError: the file is of another run, or damaged, or of a run that is not finished
                and would be lost without `resume`.
        """
        prepare_folder(self._path.parent)
        sweep(self._path.parent)
        if not resume:
            forget_finished(self._path.parent)
        if not self._path.exists():
            return None
        with _opened(self._path) as (header, tensor):
            self._check_same(header["run"])
            finished = Finished(
                weights=tensor("weights"),
                kept=tensor("kept"),
                rows=[StageRow(**row) for row in header["rows"]],
                place=tuple(header["place"]),
                ridge_step=header["ridge_step"],
                seconds=header["seconds"],
            )
        logger.info("going on after stage %d of %d", len(finished.rows), self._stages)
        return finished

    def write(self, finished: Finished) -> None:
        """Put these stages in the place of those before."""
        header = {
            "run": self._run,
            "stages": self._stages,
            "rows": [asdict(row) for row in finished.rows],
            "place": finished.place,
            "ridge_step": finished.ridge_step,
            "seconds": finished.seconds,
        }
        tensors = {"weights": finished.weights.cpu(), "kept": finished.kept.cpu()}
        content = safetensors.torch.save(tensors, metadata={_HEADER: json.dumps(header)})
        write_whole(self._path, content)

    def _check_same(self, found: Mapping[str, Any]) -> None:
        names = [name for name in self._run if self._run[name] != found.get(name)]
        if names:
            differences = "; ".join(
                f"{name} is {found.get(name)!r} there, {self._run[name]!r} here" for name in names
            )
            raise ChitaError(
                f"{self._path} is of another run: {differences}; give what that run was given, "
                "or another folder"
            )


def stages_done(folder: Path) -> tuple[int, int] | None:
    """How many stages of how many the run in `folder` has finished; None if there is none."""
    path = folder / STAGE_FILE
    if not path.exists():
        return None
    with _opened(path) as (header, _):
        return len(header["rows"]), header["stages"]


def forget_finished(folder: Path) -> None:
    """Make room for a new run in `folder`; one that is not finished is not given up for it."""
    done, stages = stages_done(folder) or (0, 0)
    if done < stages:
        raise ChitaError(
            f"{folder} holds a run that was interrupted after stage {done} of {stages}: resume it, "
            f"give another folder, or delete {STAGE_FILE} there"
        )
    (folder / STAGE_FILE).unlink(missing_ok=True)


def fingerprint(named: Iterable[tuple[str | int, Tensor]]) -> str:
    """Stands for the tensors: their names, types, shapes and values."""
    found = hashlib.sha256()
    for name, tensor in named:
        found.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        found.update(tensor.detach().cpu().reshape(-1).view(torch.uint8).numpy().data)
    return found.hexdigest()[:16]


@contextmanager
def _opened(path: Path) -> Iterator[tuple[dict[str, Any], Callable[[str], Tensor]]]:
    """The header and a reader of tensors; whatever is amiss with either is a ChitaError."""
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            yield json.loads((file.metadata() or {})[_HEADER]), file.get_tensor
    except (OSError, safetensors.SafetensorError, KeyError, TypeError, ValueError) as error:
        raise ChitaError(
            f"cannot read {path} as a finished stage: it is damaged, or no file of chita's "
            f"({error}); delete it to start anew"
        ) from error
