"""The samples of a stage in files: as large as the samples, and equal to those given."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from chita.model.samples.batch import Batch
from chita.pruning.block_by_block.stage_samples import StageSamples
from chita.pruning.block_by_block.stored_pieces import OnDisk


def test_files_contain_the_samples_of_a_piece_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pieces are views into a large batch, whose other samples must not be written."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    images, labels = torch.randn(64, 500), torch.arange(64)
    given = Batch(((images,), labels), 64)
    samples = StageSamples(given.split(4), OnDisk(), None)
    sizes = [path.stat().st_size for path in tmp_path.rglob("*.pt")]
    assert len(sizes) == 16 and sum(sizes) < 1.5 * images.nbytes
    pieces = [piece for piece, before in samples if before is None]
    assert [piece.size for piece in pieces] == [4] * 16
    found = [piece.content for piece in pieces]
    assert torch.equal(torch.cat([inputs[0] for inputs, _ in found]), images)
    assert torch.equal(torch.cat([targets for _, targets in found]), labels)
