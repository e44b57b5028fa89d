"""A run that was interrupted goes on after its last finished stage, to the same bits."""

from __future__ import annotations

import logging
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from chita import ChitaError, PruneResult
from chita.resume import StageFile
from chita.weights import Weights

from .pruning import STAGED, Again, Watch, cut, points, prune_quietly, same, snapshot, tiny

STAGES = 5


def prune(model: nn.Module, batches: Any, folder: Path | None, **keywords: Any) -> PruneResult:
    return prune_quietly(
        model, batches, **{"sparsity": 0.9, "stages": STAGES, "checkpoints": folder} | keywords
    )


def interrupt_at(model: nn.Module, moment: int) -> None:
    """The model stops the run at a forward pass."""
    left = moment

    def count_down(*_: Any) -> None:
        nonlocal left
        if not left:
            raise KeyboardInterrupt
        left -= 1

    model.register_forward_pre_hook(count_down)


def untimed(result: PruneResult) -> list[dict[str, Any]]:
    rows = [asdict(row) for row in result.stages]
    return [{k: v for k, v in row.items() if not k.endswith("seconds")} for row in rows]


def passes(batches: Any, **keywords: Any) -> int:
    """The forward passes of an undisturbed run."""
    model = tiny()
    watch = Watch(model)
    prune(model, batches, None, **keywords)
    return len(watch.inputs)


def check_resumes(
    folder: Path, batches: Any, *, moments: list[int], **keywords: Any
) -> list[tuple[int, int] | None]:
    """Interrupt one run at the moments, each counted from the last, and compare its end with that
    of a run that was left alone; gives what was found in the folder after each.

    Args:
        folder: for the run.
        batches: a function that gives the data anew, as another process would have them.
        moments: forward passes.
        keywords: for prune.
    """
    truth, model, found = tiny(), tiny(), []
    expected = prune(truth, batches(), None, **keywords)
    for moment in moments:
        model = tiny()
        interrupt_at(model, moment)
        with pytest.raises(KeyboardInterrupt):
            prune(model, batches(), folder, resume=True, **keywords)
        found.append(StageFile.done(folder))
    model = tiny()
    result = prune(model, batches(), folder, resume=True, **keywords)
    assert same(snapshot(model), snapshot(truth))
    assert untimed(result) == untimed(expected)
    assert same(result.masks, expected.masks)
    assert StageFile.done(folder) == (STAGES, STAGES)
    return found


@pytest.mark.parametrize("ridge", [0.01, "auto"])
@pytest.mark.parametrize("samples", [10, 16])
def test_wherever_it_is_interrupted(ridge: Any, samples: int, tmp_path: Path) -> None:
    """Lists, read in an order drawn from the seed; a stage takes less or more than a pass."""

    def batches() -> Any:
        return cut(points(41), 7)

    keywords = {"ridge": ridge, "samples": samples, "seed": 3}
    count = passes(batches(), **keywords)
    seen = set()
    for moment in range(0, count, max(1, count // 9)):
        seen.update(check_resumes(tmp_path / str(moment), batches, moments=[moment], **keywords))
    assert len(seen) >= 4 and None in seen


def test_again_and_again(tmp_path: Path) -> None:
    def batches() -> Any:
        return cut(points(41), 7)

    count = passes(batches(), ridge="auto")
    found = check_resumes(tmp_path, batches, moments=[count // 3, 2, count // 4], ridge="auto")
    assert found[0] == found[1] != found[2]


@pytest.mark.parametrize("samples", [41, 400])
def test_auto_wherever_it_is_interrupted(samples: int, tmp_path: Path) -> None:
    """While it gathers the dense means, in any stage, and while it repairs; the data are read
    several times, or not to their end."""

    def batches() -> Any:
        return cut(points(samples), 7)

    keywords = {"method": "auto", "ridge": "auto", "samples": 12, "seed": 3}
    count, seen = passes(batches(), **keywords), set()
    for moment in [*range(0, count, count // 6), count - 2]:
        seen.update(check_resumes(tmp_path / str(moment), batches, moments=[moment], **keywords))
    assert len(seen) >= 4 and {None, (STAGES, STAGES)} <= seen


def shuffled_loader() -> Any:
    inputs, targets = points(41)
    generator = torch.Generator().manual_seed(2)
    return DataLoader(TensorDataset(inputs, targets), 4, shuffle=True, generator=generator)


@pytest.mark.parametrize("method", STAGED)
@pytest.mark.parametrize("batches", [lambda: Again(cut(points(41), 7)), shuffled_loader])
def test_data_of_other_kinds(batches: Any, method: str, tmp_path: Path) -> None:
    """Also such as draw a new order for each pass, from a seed."""
    keywords = {"ridge": "auto", "samples": 12, "method": method}
    moment = int(0.7 * passes(batches(), **keywords))
    (found,) = check_resumes(tmp_path, batches, moments=[moment], **keywords)
    assert found and 1 < found[0] < STAGES


@pytest.mark.parametrize("method", ["magnitude", "chita-cd", "l-obs", "cbs", "m-fac", "auto"])
def test_any_method(method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopped while weights are written."""
    batches, truth, model = cut(points(24), 7), tiny(), tiny()
    prune(truth, batches, None, method=method)
    with monkeypatch.context() as patched:
        replace, left = Weights.replace, 3

        def interrupted(self: Weights, vector: torch.Tensor) -> None:
            nonlocal left
            left -= 1
            if not left:
                raise KeyboardInterrupt
            replace(self, vector)

        patched.setattr(Weights, "replace", interrupted)
        with pytest.raises(KeyboardInterrupt):
            prune(model, batches, tmp_path, method=method)
    assert StageFile.done(tmp_path) == (2, STAGES)
    model = tiny()
    prune(model, batches, tmp_path, method=method, resume=True)
    assert same(snapshot(model), snapshot(truth))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_weights_of_other_types(dtype: torch.dtype, tmp_path: Path) -> None:
    batches = [(x.to(dtype), t) for x, t in cut(points(24), 7)]
    truth, model = tiny().to(dtype), tiny().to(dtype)
    prune(truth, batches, None)
    interrupt_at(model, 12)
    with pytest.raises(KeyboardInterrupt):
        prune(model, batches, tmp_path)
    assert StageFile.done(tmp_path) not in (None, (STAGES, STAGES))
    model = tiny().to(dtype)
    prune(model, batches, tmp_path, resume=True)
    assert same(snapshot(model), snapshot(truth))


def test_a_finished_run_ends_at_once(tmp_path: Path) -> None:
    model, again = tiny(), tiny()
    first = prune(model, [points(24)], tmp_path)
    watch = Watch(again)
    second = prune(again, [points(24)], tmp_path, resume=True)
    assert watch.with_gradients == [False]  # one sample, whose multiply-adds are counted
    assert same(snapshot(again), snapshot(model))
    assert same(second.masks, first.masks)
    assert second.stages == first.stages  # to the second
    assert second.seconds.gradients == first.seconds.gradients
    assert second.seconds.total > first.seconds.gradients + first.seconds.solve


def unfinished(folder: Path, **keywords: Any) -> None:
    """A run of `tiny` on 24 points that was interrupted after stage 2."""
    model, batches = tiny(), [points(24)]
    interrupt_at(model, 2 * passes(batches, **keywords) // STAGES + 1)
    with pytest.raises(KeyboardInterrupt):
        prune(model, batches, folder, **keywords)
    assert StageFile.done(folder) == (2, STAGES)


def test_an_unfinished_run_is_not_given_up(tmp_path: Path) -> None:
    unfinished(tmp_path)
    with pytest.raises(ChitaError, match=r"interrupted after stage 2 of 5.*resume.*another folder"):
        prune(tiny(), [points(24)], tmp_path)
    assert StageFile.done(tmp_path) == (2, STAGES)


def test_a_finished_run_makes_way(tmp_path: Path) -> None:
    """Before the first stage is done: what is found after that is of the new run."""
    prune(tiny(), [points(24)], tmp_path)
    model = tiny()
    interrupt_at(model, 1)
    with pytest.raises(KeyboardInterrupt):
        prune(model, [points(24)], tmp_path, seed=1)
    assert StageFile.done(tmp_path) is None


def test_nothing_to_go_on_with_is_a_start(tmp_path: Path) -> None:
    model, truth = tiny(), tiny()
    prune(model, [points(24)], tmp_path / "new" / "folder", resume=True)
    prune(truth, [points(24)], None)
    assert same(snapshot(model), snapshot(truth))


@pytest.mark.parametrize(
    ("other", "says"),
    [
        ({"sparsity": 0.8}, "sparsity is 0.9 there, 0.8 here"),
        ({"solver": "cd"}, "solver is None there, 'cd' here"),
        ({"samples": 11}, "samples is None there, 11 here; n is 12 there, 11 here"),
        ({"batch": 3}, "batch is 2 there, 3 here; n is 12 there, 8 here"),
        ({"ridge": 0.1}, "ridge is 0.01 there, 0.1 here"),
        ({"first_order": False}, "first_order is None there, False here"),
        ({"stages": 6}, "stages is 5 there, 6 here"),
        ({"schedule": "linear"}, "schedule is None there, 'linear' here"),
        ({"block_size": 20}, "block_size is None there, 20 here"),
        ({"exclude": ["2.*"]}, r"exclude is None there, \['2.\*'\] here; p is 72 there, 48 here"),
        ({"seed": 1}, "seed is 0 there, 1 here"),
    ],
)
def test_other_arguments_are_refused(other: dict[str, Any], says: str, tmp_path: Path) -> None:
    unfinished(tmp_path)
    model = tiny()
    with pytest.raises(ChitaError, match=f"{StageFile.file} is of another run: {says}; give"):
        prune(model, [points(24)], tmp_path, resume=True, **other)
    assert same(snapshot(model), snapshot(tiny()))


def test_another_model_or_other_data_are_refused(tmp_path: Path) -> None:
    unfinished(tmp_path)
    biased = tiny()
    nn.init.ones_(biased[2].bias)
    for model in (tiny(seed=1), biased):
        with pytest.raises(ChitaError, match="run: the fingerprint of the model at the start is"):
            prune(model, [points(24)], tmp_path, resume=True)
    with pytest.raises(ChitaError, match="run: the fingerprint of the data is"):
        prune(tiny(), [points(24, seed=1)], tmp_path, resume=True)


def test_the_same_may_be_written_otherwise(tmp_path: Path) -> None:
    unfinished(tmp_path, include=["0.weight", "2.weight"])
    keywords = {"include": ("0.weight", "2.weight"), "stages": np.int64(5), "seed": np.uint8(0)}
    assert len(prune(tiny(), [points(24)], tmp_path, resume=True, **keywords).stages) == STAGES


@pytest.mark.parametrize("resume", [True, False])
@pytest.mark.parametrize("damage", ["short", "empty", "other", "foreign", "older"])
def test_damaged_and_foreign_files_are_errors(damage: str, resume: bool, tmp_path: Path) -> None:
    unfinished(tmp_path)
    path = tmp_path / StageFile.file
    content = path.read_bytes()
    if damage == "foreign":
        save_file({"weights": torch.zeros(72), "kept": torch.zeros(72)}, path)
    else:
        older = content.replace(b"rows", b"rose")
        path.write_bytes(
            {"short": content[:-1], "empty": b"", "other": b"text" * 50, "older": older}[damage]
        )
    before = path.read_bytes()
    with pytest.raises(ChitaError, match=rf"cannot read .*{StageFile.file}.*damaged.*delete it"):
        prune(tiny(), [points(24)], tmp_path, resume=resume)
    assert path.read_bytes() == before


def test_a_folder_is_needed(tmp_path: Path) -> None:
    with pytest.raises(ChitaError, match="resume=True needs checkpoints"):
        prune(tiny(), [points(24)], None, resume=True)
    (tmp_path / "file").touch()
    with pytest.raises(ChitaError, match="cannot write"):
        prune(tiny(), [points(24)], tmp_path / "file")


def test_one_file_and_nothing_else(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What a process that was killed left is swept up."""
    unfinished(tmp_path)
    scratch = tmp_path / f".unfinished-{StageFile.file}-abc"
    scratch.mkdir()
    (scratch / StageFile.file).write_bytes(b"half")
    with caplog.at_level(logging.INFO, logger="chita"):
        prune(tiny(), [points(24)], str(tmp_path), resume=True)  # type: ignore[arg-type]
    assert "going on after stage 2 of 5" in caplog.text
    assert [path.name for path in tmp_path.iterdir()] == [StageFile.file]
