from typing import Any

from chita.report.page.stage_charts import along_the_stages, gains_section, stages_fold

STAGES: list[dict[str, Any]] = [
    {
        "stage": 1,
        "sparsity": 0.5,
        "held_out_loss": 0.2,
        "held_out_error": 0.01,
        "recovery_steps": 10,
        "mask_loss": 0.4,
        "solved_loss": 0.3,
        "choice_loss": 0.1,
    },
    {"stage": 2, "sparsity": 0.8, "held_out_loss": 0.5, "recovery_steps": 10, "choice_loss": 0.4},
]


def xy(series: dict[str, Any]) -> list[tuple[float, float]]:
    return [(point["x"], point["y"]) for point in series["points"]]


def test_the_held_out_loss_stands_against_sparsity_with_its_error() -> None:
    chart = along_the_stages(STAGES)
    assert chart is not None
    (ours,) = chart["series"]
    assert xy(ours) == [(0.5, 0.2), (0.8, 0.5)]
    assert [point["error"] for point in ours["points"]] == [0.01, None]
    assert along_the_stages(STAGES[:1]) is None


def test_accuracies_are_preferred_and_stages_below_the_floor_are_apart() -> None:
    rows = [
        {"sparsity": 0.5, "accuracy": 95.0, "held_out_loss": 0.1, "accepted": True},
        {"sparsity": 0.8, "accuracy": 94.0, "held_out_loss": 0.2, "accepted": True},
        {"sparsity": 0.9, "accuracy": 80.0, "held_out_loss": 0.9, "accepted": False},
    ]
    chart = along_the_stages(rows)
    assert chart is not None
    assert chart["y"]["form"] == "percent"
    assert [xy(series) for series in chart["series"]] == [[(0.5, 95.0), (0.8, 94.0)], [(0.9, 80.0)]]


def test_what_each_part_gained_is_a_curve_over_the_stages() -> None:
    gains = {"solve": 0.1, "recovery": -0.2}
    repairs = [
        {"repair": "biases", "loss_before": 0.5, "loss_after": 0.4, "kept": True},
        {"repair": "batch norm", "loss_before": 0.5, "loss_after": 0.6, "kept": False},
    ]
    found = gains_section({"gains": gains, "repairs": repairs}, STAGES)
    assert found is not None
    mask, solve, training = found["charts"][0]["series"]
    assert (xy(mask), xy(solve), xy(training)) == ([(1, 0.4)], [(1, 0.3)], [(1, 0.1), (2, 0.4)])
    for words in ("solves lowered", "by 0.1,", "training raised", "by 0.2.", "biases"):
        assert words in found["text"]
    assert "batch norm" not in found["text"]


def test_parts_without_effect_are_said_to_have_none() -> None:
    found = gains_section({"gains": {"solve": 0.0, "recovery": 0.0}}, STAGES)
    assert found is not None
    assert found["text"].count("did not change") == 2


def test_a_single_stage_is_shown_as_bars() -> None:
    found = gains_section({}, STAGES[:1])
    assert found is not None
    (chart,) = found["charts"]
    assert [row["value"] for row in chart["rows"]] == [0.4, 0.3, 0.1]


def test_without_training_and_repairs_nothing_is_said_about_gains() -> None:
    rows = [{"stage": 1, "choice_loss": 0.1, "recovery_steps": 0}]
    assert gains_section({"gains": None, "repairs": []}, rows) is None


def test_new_keys_of_a_stage_show_and_missing_ones_do_no_harm() -> None:
    stages = [
        {
            "stage": 1,
            "loss": 0.5,
            "choice": "uniform",
            "candidates": [{"loss": 0.5}, {"loss": 0.75}, "odd"],
        },
        {
            "stage": 2,
            "objective": float("nan"),
            "loss": 0.25,
            "choice": "global",
            "why": "lower loss",
        },
    ]
    found = stages_fold(stages)
    loss_chart, tried_chart = found["charts"]  # no objective, ridge or seconds to draw
    (loss,) = loss_chart["series"]
    (tried,) = tried_chart["series"]
    assert xy(tried) == [(1, 0.5), (1, 0.75)]
    assert [point["note"] for point in loss["points"]] == [
        "choice: uniform",
        "choice: global, why: lower loss",
    ]
    (table,) = found["tables"]
    assert set(table["columns"]) == {"stage", "objective", "loss", "choice", "why", "candidates"}
    assert table["rows"][0][table["columns"].index("candidates")] == "3"
