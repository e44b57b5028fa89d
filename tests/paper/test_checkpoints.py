from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from chita import zoo
from chita.errors import ChitaError
from chita.files.checkpoint import save_checkpoint
from chita.paper.benchmark import Bench, run_benchmark
from chita.paper.cells import Cell, Record
from chita.paper.checkpoints import require_same_checkpoints
from chita.paper.networks import CHECKPOINTS, Subject, find_subjects
from chita.paper.write import Report
from tests.paper.small import embedded
from tests.support.messages import naming


class Names:
    """A benchmark whose cells contain the name of the network."""

    def cells(self, bench: Bench) -> list[Cell]:
        return [Cell({"network": name}, lambda: {"figure": 1}) for name in bench.subjects]

    def report(self, records: Sequence[Record]) -> Report:
        rows = [{"network": record["key"]["network"]} for record in records]
        return Report(title="names", rows=rows, text="", draw=lambda figure: None)


def subjects(folder: Path, seed: int, *changed: str) -> dict[str, Subject]:
    """The networks of a folder of checkpoints, of which some are written with other weights."""
    folder.mkdir(exist_ok=True)
    for name in changed:
        torch.manual_seed(seed)
        save_checkpoint(zoo.get(name).build(), folder / CHECKPOINTS[name])
    return find_subjects(folder, device=torch.device("cpu"), out=folder / "unused")


def run(found: dict[str, Subject], out: Path) -> None:
    out.mkdir(exist_ok=True)
    run_benchmark("names", Names(), Bench(found, 1), out)


def test_cells_of_another_checkpoint_are_not_reused(tmp_path: Path) -> None:
    given, out = tmp_path / "given", tmp_path / "out"
    first = subjects(given, 0, "mlpnet", "resnet20")
    run(first, out)
    cells = (out / "cells.jsonl").read_text()
    run(first, out)
    other = subjects(given, 1, "resnet20")
    with pytest.raises(
        ChitaError,
        match=naming("resnet20", str(out), CHECKPOINTS["resnet20"], "--checkpoints", "--out"),
    ):
        run(other, out)
    assert (out / "cells.jsonl").read_text() == cells
    run(subjects(given, 0, "resnet20"), out)  # the same weights in a new file


def test_cells_without_stored_checkpoints_stay_valid(tmp_path: Path) -> None:
    (tmp_path / "cells.jsonl").write_text('{"key": {"network": "mlpnet-embedded"}, "figure": 2}\n')
    run(embedded(tmp_path).subjects, tmp_path)
    assert (tmp_path / "cells.jsonl").read_text().count("figure") == 1


def test_other_networks_may_be_added(tmp_path: Path) -> None:
    require_same_checkpoints(embedded(tmp_path).subjects, tmp_path)
    both = subjects(tmp_path / "given", 0, "mlpnet", "resnet20")
    require_same_checkpoints(both, tmp_path)
    require_same_checkpoints(embedded(tmp_path).subjects, tmp_path)
    with pytest.raises(ChitaError, match=naming("mlpnet")):
        require_same_checkpoints(subjects(tmp_path / "given", 1, "mlpnet"), tmp_path)


@pytest.mark.parametrize("content", ["[1]", '{"mlpnet'])
def test_a_damaged_file_is_named(content: str, tmp_path: Path) -> None:
    (tmp_path / "networks").mkdir()
    (tmp_path / "networks" / "checkpoints.json").write_text(content)
    found = embedded(tmp_path).subjects
    with pytest.raises(ChitaError, match=naming("checkpoints.json")):
        require_same_checkpoints(found, tmp_path)
