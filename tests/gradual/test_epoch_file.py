import re
from pathlib import Path
from typing import Any

import pytest
import torch

from chita.errors import ChitaError
from chita.gradual.epoch_file import EpochFile, FinishedEpochs
from chita.gradual.history import EpochRow
from tests.support.messages import naming

RUN: dict[str, Any] = {"method": "chita-bso", "seed": 3, "include": ("a*", "b*")}


def finished(epochs: int) -> FinishedEpochs:
    return FinishedEpochs(
        rows=[
            EpochRow(
                epoch=epoch + 1,
                pruned=epoch == 0,
                sparsity=0.5,
                learning_rate=0.1,
                last_learning_rate=0.0,
                loss=1.5,
                accuracy=50.0,
                seconds=1.0,
            )
            for epoch in range(epochs)
        ],
        model={"w": torch.arange(3.0)},
        optimizer={"state": {0: {"momentum_buffer": torch.ones(3)}}, "param_groups": [{"lr": 0.1}]},
        sparsifier={"masks": {"w": torch.tensor([True, False, True])}, "steps_done": 1},
    )


def file(folder: Path) -> EpochFile:
    return EpochFile(folder, run=RUN, epochs=4)


def test_what_is_written_comes_back(tmp_path: Path) -> None:
    folder = tmp_path / "new"
    assert file(folder).begin(resume=True) is None
    for epochs in (1, 2):
        file(folder).write(finished(epochs))
    found = file(folder).begin(resume=True)
    assert found is not None
    assert found.rows == finished(2).rows
    assert torch.equal(found.model["w"], torch.arange(3.0))
    assert torch.equal(found.optimizer["state"][0]["momentum_buffer"], torch.ones(3))
    assert found.sparsifier["steps_done"] == 1
    assert EpochFile.done(folder) == (2, 4)
    assert [path.name for path in folder.iterdir()] == [EpochFile.file]


@pytest.mark.parametrize("damage", [b"", b"no such thing", "half", "other"])
def test_a_damaged_file_says_so(damage: bytes | str, tmp_path: Path) -> None:
    path = tmp_path / EpochFile.file
    file(tmp_path).write(finished(1))
    if damage == "half":
        damage = path.read_bytes()[:500]
    if damage == "other":
        torch.save({"w": torch.ones(2)}, path)
    else:
        assert isinstance(damage, bytes)
        path.write_bytes(damage)
    with pytest.raises(ChitaError, match=naming("epoch.pt", re.compile("damaged|corrupt"))):
        file(tmp_path).begin(resume=True)


def test_every_flipped_bit_is_noticed_or_changes_nothing(tmp_path: Path) -> None:
    file(tmp_path).write(finished(2))
    path = tmp_path / EpochFile.file
    content, noticed = path.read_bytes(), 0
    for bit in range(0, 8 * len(content), 97):
        damaged = bytearray(content)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        try:
            found = file(tmp_path).begin(resume=True)
        except ChitaError:
            noticed += 1
            continue
        assert found is not None and found.rows == finished(2).rows
        assert torch.equal(found.model["w"], torch.arange(3.0))
        assert torch.equal(found.optimizer["state"][0]["momentum_buffer"], torch.ones(3))
        assert torch.equal(found.sparsifier["masks"]["w"], finished(2).sparsifier["masks"]["w"])
        assert (found.sparsifier["steps_done"], EpochFile.done(tmp_path)) == (1, (2, 4))
    assert noticed > 100


def test_a_file_without_a_digest_says_so(tmp_path: Path) -> None:
    stored = vars(finished(1)) | {"run": {**RUN, "include": ["a*", "b*"]}, "epochs": 4}
    stored["rows"] = [vars(row) for row in finished(1).rows]
    torch.save(stored, tmp_path / EpochFile.file)
    with pytest.raises(ChitaError, match=naming(EpochFile.file, "--overwrite")):
        file(tmp_path).begin(resume=True)


def test_a_file_without_an_option_belongs_to_another_run(tmp_path: Path) -> None:
    run = {name: value for name, value in RUN.items() if name != "seed"}
    EpochFile(tmp_path, run=run, epochs=4).write(finished(1))
    with pytest.raises(ChitaError, match=naming("seed", None, 3)):
        file(tmp_path).begin(resume=True)
