"""A run that was interrupted goes on after its last finished stage, to the same bits."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch.utils.data import DataLoader, TensorDataset

from chita import PruneResult
from chita.model.weights import Weights
from chita.pruning.block_by_block.layer_solver import LayerSolver
from chita.pruning.resume import StageFile
from tests.support.interrupting import STAGES, interrupt_after, interrupt_at, passes, prune
from tests.support.pruning import STAGED, Again, Watch, cut, points, same, snapshot, tiny

pytestmark = pytest.mark.slow


def untimed(result: PruneResult) -> list[dict[str, Any]]:
    rows = [asdict(row) for row in result.stages]
    return [{k: v for k, v in row.items() if not k.endswith("seconds")} for row in rows]


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
    expected = prune(truth, batches(), None, **{"recover": False, **keywords})
    for moment in moments:
        model = tiny()
        interrupt_at(model, moment)
        with pytest.raises(KeyboardInterrupt):
            prune(model, batches(), folder, resume=True, **{"recover": False, **keywords})
        found.append(StageFile.done(folder))
    model = tiny()
    result = prune(model, batches(), folder, resume=True, **{"recover": False, **keywords})
    assert same(snapshot(model), snapshot(truth))
    assert untimed(result) == untimed(expected)
    assert same(result.masks, expected.masks)
    stages = len(result.stages)
    assert StageFile.done(folder) == (stages, stages)
    assert stages == STAGES or (keywords.get("method", "auto") == "auto" and stages < STAGES)
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
    found = check_resumes(tmp_path, batches, moments=[count // 2, 2, count // 2], ridge="auto")
    assert found[0] == found[1] != found[2]


@pytest.mark.parametrize("samples", [41, 400])
def test_auto_wherever_it_is_interrupted(samples: int, tmp_path: Path) -> None:
    """While it gathers the dense means, in any stage, and while it repairs; the data are read
    several times, or not to their end."""

    def batches() -> Any:
        return cut(points(samples), 7)

    keywords = {"method": "auto", "ridge": "auto", "samples": 12, "seed": 3}
    count, seen = passes(batches(), **keywords), set()
    for moment in sorted({*range(0, count, count // 10), count - 2}):
        seen.update(check_resumes(tmp_path / str(moment), batches, moments=[moment], **keywords))
    finished = {done for done in seen if done is not None and done[0] == done[1]}
    assert len(seen) >= 4 and None in seen and len(finished) == 1  # fewer than STAGES may suffice


def shuffled_loader() -> Any:
    inputs, targets = points(41)
    generator = torch.Generator().manual_seed(2)
    return DataLoader(TensorDataset(inputs, targets), 4, shuffle=True, generator=generator)


@pytest.mark.parametrize("method", STAGED)
@pytest.mark.parametrize("batches", [lambda: Again(cut(points(41), 7)), shuffled_loader])
def test_data_of_other_kinds(batches: Any, method: str, tmp_path: Path) -> None:
    """Also such as draw a new order for each pass, from a seed."""
    keywords = {"ridge": "auto", "samples": 12, "method": method}
    moment = int(0.9 * passes(batches(), **keywords))
    (found,) = check_resumes(tmp_path, batches, moments=[moment], **keywords)
    assert found and 1 < found[0] < STAGES


@pytest.mark.parametrize("method", ["magnitude", "chita-cd", "sparsegpt", "cbs", "m-fac", "auto"])
def test_any_method(method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopped while weights are written: all at once, or layer by layer with sparsegpt."""
    batches, truth, model = cut(points(24), 7), tiny(), tiny()
    prune(truth, batches, None, method=method, recover=False)
    by_layer = method == "sparsegpt"
    owner, name, left = (LayerSolver, "prune", 6) if by_layer else (Weights, "replace", 3)
    with monkeypatch.context() as patched:
        write = getattr(owner, name)

        def interrupted(*args: Any) -> Any:
            nonlocal left
            left -= 1
            if not left:
                raise KeyboardInterrupt
            return write(*args)

        patched.setattr(owner, name, interrupted)
        with pytest.raises(KeyboardInterrupt):
            prune(model, batches, tmp_path, method=method, recover=False)
    assert StageFile.done(tmp_path) == (2, STAGES)
    state = load_file(tmp_path / "stage.safetensors")
    assert torch.equal(Weights(model).vector(), state["weights"])
    model = tiny()
    prune(model, batches, tmp_path, method=method, resume=True, recover=False)
    assert same(snapshot(model), snapshot(truth))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_weights_of_other_types(dtype: torch.dtype, tmp_path: Path) -> None:
    batches = [(x.to(dtype), t) for x, t in cut(points(24), 7)]
    truth, model = tiny().to(dtype), tiny().to(dtype)
    prune(truth, batches, None, recover=False)
    interrupt_after(model, tmp_path, 2)
    with pytest.raises(KeyboardInterrupt):
        prune(model, batches, tmp_path, recover=False)
    assert StageFile.done(tmp_path) == (2, STAGES)
    model = tiny().to(dtype)
    prune(model, batches, tmp_path, resume=True, recover=False)
    assert same(snapshot(model), snapshot(truth))


def test_a_finished_run_ends_at_once(tmp_path: Path) -> None:
    model, again = tiny(), tiny()
    first = prune(model, [points(24)], tmp_path, recover=False)
    watch = Watch(again)
    second = prune(again, [points(24)], tmp_path, resume=True, recover=False)
    # A mini-batch that finds which weights gradients reach, and a sample to count multiply-adds.
    assert watch.with_gradients == [True, False]
    assert same(snapshot(again), snapshot(model))
    assert same(second.masks, first.masks)
    assert second.stages == first.stages  # to the second
    assert second.seconds.gradients == first.seconds.gradients
    assert second.seconds.total > first.seconds.gradients + first.seconds.solve


def test_nothing_to_go_on_with_is_a_start(tmp_path: Path) -> None:
    model, truth = tiny(), tiny()
    prune(model, [points(24)], tmp_path / "new" / "folder", resume=True, recover=False)
    prune(truth, [points(24)], None, recover=False)
    assert same(snapshot(model), snapshot(truth))
