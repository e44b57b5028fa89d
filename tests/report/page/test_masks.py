import base64
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from chita.errors import ChitaError
from chita.files.checkpoint import save_checkpoint
from chita.report.page.masks import CELLS, SIDE, mask_pictures, pool
from tests.support.messages import naming


@settings(max_examples=60, deadline=None)
@given(
    rows=st.integers(1, 40),
    columns=st.integers(1, 40),
    seed=st.integers(0, 1000),
    share=st.floats(0, 1),
    data=st.data(),
)
def test_a_cell_is_the_share_of_its_patch(
    rows: int, columns: int, seed: int, share: float, data: st.DataObject
) -> None:
    height, width = data.draw(st.integers(1, rows)), data.draw(st.integers(1, columns))
    mask = np.random.default_rng(seed).random((rows, columns)) < share
    pooled = pool(mask, height, width)
    for r in range(height):
        for c in range(width):
            patch = mask[
                r * rows // height : (r + 1) * rows // height,
                c * columns // width : (c + 1) * columns // width,
            ]
            assert pooled[r, c] == pytest.approx(patch.mean())


def test_a_small_mask_is_drawn_weight_by_weight(tmp_path: Path) -> None:
    masks = {
        "conv": torch.rand(4, 3, 2, 2, generator=torch.Generator().manual_seed(0)) < 0.3,
        "bias": torch.tensor([True, False]),
    }
    save_checkpoint(masks, tmp_path / "m.safetensors")
    conv, bias = mask_pictures(tmp_path / "m.safetensors", ["conv"])
    assert (conv["name"], conv["shape"]) == ("conv", [4, 3, 2, 2])
    assert (conv["height"], conv["width"]) == (4, 12)
    assert conv["kept"] == int(masks["conv"].sum())
    cells = np.frombuffer(base64.b64decode(conv["cells"]), np.uint8)
    np.testing.assert_array_equal(cells == 255, masks["conv"].flatten().numpy())
    assert set(cells) == {0, 255}
    assert (bias["height"], bias["width"], bias["kept"]) == (1, 2, 1)


def test_pictures_stay_within_the_cells_of_a_page(tmp_path: Path) -> None:
    masks = {f"layer{i}": torch.ones(600, 30, dtype=torch.bool) for i in range(60)}
    masks["wide"] = torch.zeros(2, 50_000, dtype=torch.bool)
    save_checkpoint(masks, tmp_path / "m.safetensors")
    pictures = mask_pictures(tmp_path / "m.safetensors")
    assert sum(p["height"] * p["width"] for p in pictures) <= CELLS
    assert max(max(p["height"], p["width"]) for p in pictures) <= 4 * SIDE
    wide = next(p for p in pictures if p["name"] == "wide")
    assert wide["densest"] == 0


def test_damaged_masks_are_named(tmp_path: Path) -> None:
    (tmp_path / "m.safetensors").write_bytes(b"no masks")
    with pytest.raises(ChitaError, match=naming("m.safetensors", "masks")):
        mask_pictures(tmp_path / "m.safetensors")
