"""The rows of a result as JSON."""

from __future__ import annotations

import json
import math
from typing import Any

from chita.pruning.auto.candidates import Blocks, Candidate
from chita.pruning.result_rows import StageRow, json_safe

# A stage as files contained it before rows stored their candidate.
STORED: dict[str, Any] = {
    "stage": 3,
    "sparsity": 0.5,
    "kept": 10,
    "ridge": 0.01,
    "objective": 1.5,
    "loss": 0.25,
    "held_out_loss": 0.5,
    "iterations": 5,
    "converged": True,
    "jitter": 0.0,
    "gradient_seconds": 1.0,
    "solve_seconds": 2.0,
    "held_out_seconds": 3.0,
    "held_out_error": None,
    "choice_loss": 0.4,
    "sample_gradients": 100,
    "accepted": True,
    "metric": "lamp",
    "block_size": 2000,
    "block_sweeps": 1,
    "first_order": False,
    "layer_share": 1.0,
    "step": 0.5,
    "accuracy": None,
    "dead": 0,
    "why": "",
    "mask_loss": None,
    "solved_loss": 0.7,
    "recovery_steps": 40,
    "recovery_seconds": 0.5,
    "recovered": True,
    "trained_on": "distill",
    "candidates": [{"metric": "lamp", "block_size": None, "ridge": 0.1, "loss": 0.5}],
}


def test_numbers_that_are_not_finite_become_none() -> None:
    value = {"a": [math.inf, -1.5, (math.nan, True)], "b": {"c": -math.inf, "d": "text", "e": 3}}
    assert json_safe(value) == {
        "a": [None, -1.5, [None, True]],
        "b": {"c": None, "d": "text", "e": 3},
    }


def test_a_stored_stage_is_read_with_its_candidate() -> None:
    row = StageRow.from_dict(STORED)
    assert row.candidate.values == ("lamp", False, Blocks(2000, 1), 1.0)
    assert row.to_dict() == STORED
    assert StageRow.from_dict(json.loads(json.dumps(row.to_dict(), allow_nan=False))) == row


def test_keys_that_a_stored_candidate_lacks_have_the_defaults_of_the_paper() -> None:
    assert Candidate.from_dict({}).to_dict() == {
        "metric": "plain",
        "first_order": True,
        "block_size": None,
        "block_sweeps": 0,
        "layer_share": 1.0,
    }
