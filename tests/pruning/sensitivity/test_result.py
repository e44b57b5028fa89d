import json
import math

from chita.pruning.sensitivity.result import BROKEN
from tests.pruning.sensitivity.curves import LADDER, curves


def test_rises_do_not_fall_and_start_at_the_dense_loss() -> None:
    found = curves([(10, [0.9, 1.5, 1.2, 3.0])])
    assert found.rises(found.layers[0]) == [0.0, 0.5, 0.5, 2.0]


def test_what_is_not_finite_is_beyond_all_and_null_in_json() -> None:
    found = curves([(10, [1.0, math.nan, 2.0, math.inf])])
    assert found.rises(found.layers[0]) == [0.0, BROKEN - 1, BROKEN - 1, BROKEN - 1]
    rows = json.loads(json.dumps(found.to_dict(), allow_nan=False))["rows"]
    assert [row["loss"] for row in rows] == [1.0, None, 2.0, None]
    assert [row["sparsity"] for row in rows] == list(LADDER)


def test_a_row_for_each_point() -> None:
    rows = curves([(1000, (1.0, 1.25, 1.5, 2.0)), (20, (1.0, 1.1, 3.0, 9.0))]).rows()
    assert len(rows) == 8
    assert rows[-1] == {
        "layer": "b", "weights": 20, "sparsity": 0.98, "loss": 9.0, "accuracy": 50.0,
    }  # fmt: skip
