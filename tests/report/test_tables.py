"""Results as tables."""

from __future__ import annotations

from dataclasses import replace

import chita
from chita.report.tables import as_text, layer_table, summary_table
from tests.support.messages import says
from tests.support.pruning import tiny


def test_a_row_for_each_layer_and_the_sums() -> None:
    result = chita.prune(tiny(), [], sparsity=0.9, method="magnitude", progress=False)
    table = layer_table(result)
    assert [column.header for column in table.columns] == [
        "weight",
        "shape",
        "weights",
        "kept",
        "sparsity",
    ]
    kept = [int(mask.sum()) for mask in result.masks.values()]
    columns = [list(column.cells) for column in table.columns]
    assert columns == [
        ["0.weight", "2.weight"],
        ["8 x 6", "3 x 8"],
        ["48", "24"],
        [str(count) for count in kept],
        [f"{1 - kept[0] / 48:.2%}", f"{1 - kept[1] / 24:.2%}"],
    ]
    assert [column.footer for column in table.columns] == ["all", "", "72", "7", "90.28%"]
    assert says(str(table.title), "magnitude", "90.28%", 72)


def test_the_caption_counts_stages_and_names_the_standard_error() -> None:
    result = chita.prune(tiny(), [], sparsity=0.5, method="magnitude", progress=False)
    stage = replace(result.stages[0], sample_gradients=16)
    result = replace(result, stages=[stage], held_out_loss=0.25, held_out_error=0.125)
    assert layer_table(result).caption == (
        "1 stage, 16 sample gradients, held-out loss 0.25 (standard error 0.12)"
    )
    result = replace(result, stages=[stage, stage], held_out_loss=None)
    assert layer_table(result).caption == "2 stages, 32 sample gradients"


def test_text_has_no_colours_and_fits_the_width() -> None:
    result = chita.prune(tiny(), [], sparsity=0.5, method="magnitude", progress=False)
    text = as_text(layer_table(result), width=60)
    assert "\x1b" not in text
    assert max(map(len, text.splitlines())) <= 60
    assert "2.weight" in text


def test_a_summary_leaves_out_what_a_method_has_not() -> None:
    result = chita.prune(tiny(), [], sparsity=0.9, method="magnitude", progress=False)
    record = {**result.to_dict(), "dense_accuracy": 96.875, "accuracy": 36.2}
    text = as_text(summary_table(record))
    rows = {line[1:-2].split("│")[0].strip(): line for line in text.splitlines() if "│" in line}
    assert "96.88 %" in rows["dense accuracy"] and "36.20 %" in rows["accuracy"]
    assert "7 of 72" in rows["non-zero weights"]
    assert not {"objective", "ridge of the last stage"} & set(rows)
    with_curvature = as_text(summary_table({**record, "objective": 0.12345, "ridge": 0.00316}))
    assert "0.1235" in with_curvature and "0.0032" in with_curvature
