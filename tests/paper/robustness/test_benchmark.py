import math
from pathlib import Path
from typing import Any

import pytest

from chita.paper import timed_prune as module
from chita.paper.benchmark import run_benchmark
from chita.paper.method_tables import DENSE
from chita.paper.robustness.benchmark import CONTENDERS, QUICK_NETWORKS, Robustness
from chita.paper.robustness.layout import (
    CANDIDATE,
    RECOVERING,
    RIVALS,
    robustness_rows,
    robustness_text,
    verdicts,
)
from chita.paper.robustness.specimens import find_specimens
from tests.paper.small import embedded, read_csv
from tests.support.messages import says

pytestmark = pytest.mark.slow


def record(
    contender: str,
    loss: float,
    *,
    network: str = "net",
    sparsity: float = 0.8,
    accuracy: float = 90.0,
    seed: int = 0,
    rescaled_from: str | None = None,
) -> dict[str, Any]:
    key = {"network": network, "sparsity": sparsity, "contender": contender, "seed": seed}
    figures = {"loss": loss, "accuracy": accuracy, "seconds": 1.0, "training_steps": 0}
    return {"key": key, **figures, "rescaled_from": rescaled_from}


def test_the_report_is_made_of_cells_that_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []

    def counted(*args: Any, **kwargs: Any) -> Any:
        calls.append(kwargs["method"])
        return prune(*args, **{"recover": False, **kwargs})

    prune = module.prune
    monkeypatch.setattr(module, "prune", counted)
    few = {name: CONTENDERS[name] for name in ("magnitude", "OBD, lambda = 0")}
    few[CANDIDATE] = {"method": "chita++", "stages": 2, "ridge": 1e-3}
    small = Robustness(QUICK_NETWORKS[:2], few, samples=50)
    run_benchmark("any", small, embedded(tmp_path), tmp_path)
    assert len(calls) == 12
    run_benchmark("any", small, embedded(tmp_path), tmp_path)
    assert len(calls) == 12
    rows = {
        (row["network"], row["sparsity"], row["method"]): row
        for row in read_csv(tmp_path / "any.csv")
    }
    whole, copy = QUICK_NETWORKS[:2]
    assert float(rows[whole, "0.0", DENSE]["accuracy"]) > 95
    assert float(rows[whole, "0.9", "magnitude"]["accuracy"]) > 85
    assert float(rows[copy, "0.9", "magnitude"]["accuracy"]) < 20  # fc2 is gone
    # OBD's saliency w^2 h does not know of the scale.
    scores = [float(rows[name, "0.9", "OBD, lambda = 0"]["loss"]) for name in (whole, copy)]
    assert scores[0] == pytest.approx(scores[1], rel=0.02)
    text = (tmp_path / "any.md").read_text()
    assert says(text, "ResNet20", "--checkpoints")
    assert f"| {whole} | 0.9 | magnitude |" in text
    assert (tmp_path / "any.png").stat().st_size > 5000


def test_one_seed_is_whole_before_the_next(tmp_path: Path) -> None:
    bench = embedded(tmp_path, seeds=2)
    keys = [cell.key for cell in Robustness().cells(bench)]
    half = len(keys) // 2
    assert [key["seed"] for key in keys] == [0] * half + [1] * half
    sparsities = sum(len(s.sparsities) for s in find_specimens(bench.subjects).values())
    assert half == 7 + sparsities * len(CONTENDERS)
    assert {key["contender"] for key in keys} == {DENSE, *CONTENDERS}
    assert {*RIVALS, *RECOVERING} < set(CONTENDERS)


@pytest.mark.parametrize(
    ("loss", "verdict"), [(0.4, "met"), (0.509, "met"), (0.511, "NOT MET"), (math.nan, "NOT MET")]
)
def test_the_loss_is_held_against_the_best_rival(loss: float, verdict: str) -> None:
    records = [record("magnitude", math.nan), record("OBD", 0.7), record("CHITA", 0.5)]
    rows = robustness_rows([*records, record("CHITA++", 0.1), record(CANDIDATE, loss)])
    (line,) = verdicts(rows)
    assert (line["best rival"], line["its loss"], line["loss"]) == ("CHITA", 0.5, verdict)
    assert line["rescaling"] is None


@pytest.mark.parametrize(("accuracy", "verdict"), [(89.0, "met"), (93.0, "met"), (88.9, "NOT MET")])
def test_rescaling_is_held_against_the_network_itself(accuracy: float, verdict: str) -> None:
    copy: dict[str, Any] = {"network": "copy", "rescaled_from": "net"}
    rows = robustness_rows(
        [
            record("magnitude", 0.5),
            record(CANDIDATE, 0.4, accuracy=90.0),
            record("magnitude", 2.3, **copy),
            record(CANDIDATE, 0.4, accuracy=accuracy, **copy),
        ]
    )
    whole, rescaled = verdicts(rows)
    assert whole["rescaling"] is None
    assert rescaled["rescaling"] == verdict
    assert rescaled["points lost by rescaling"] == pytest.approx(90.0 - accuracy)


@pytest.mark.parametrize(
    ("accuracy", "verdict"), [(89.9, "met"), (89.75, "met"), (89.65, "NOT MET")]
)
def test_the_accuracy_is_held_against_the_best_rival_with_recovery(
    accuracy: float, verdict: str
) -> None:
    records = [record("magnitude", 0.5, accuracy=95.0), record(CANDIDATE, 0.4, accuracy=accuracy)]
    (alone,) = verdicts(robustness_rows(records))
    assert alone["recovery"] is None and alone["points below it"] is None
    records += [record(name, 0.4, accuracy=90 - n) for n, name in enumerate(RECOVERING)]
    (line,) = verdicts(robustness_rows(records))
    assert (line["best with recovery"], line["recovery"]) == (RECOVERING[0], verdict)
    assert line["points below it"] == pytest.approx(90 - accuracy)


def test_seeds_are_averaged_and_sparsities_kept_apart() -> None:
    records = [
        record(name, loss, seed=seed, sparsity=sparsity)
        for sparsity, scale in ((0.8, 1.0), (0.9, 2.0))
        for seed, (rival, ours) in enumerate(((1.0, 0.5), (3.0, 2.5)))
        for name, loss in (("magnitude", scale * rival), (CANDIDATE, scale * ours))
    ]
    rows = robustness_rows(records)
    assert {row["seeds"] for row in rows} == {2}
    assert [line["ratio"] for line in verdicts(rows)] == [0.75, 0.75]
    assert [line["its loss"] for line in verdicts(rows)] == [2.0, 4.0]


def test_without_the_candidate_the_others_are_shown() -> None:
    text = robustness_text(
        robustness_rows([record(DENSE, 0.1, sparsity=0.0), record("magnitude", 0.5)])
    )
    assert says(text, "auto")
    assert "| net | 0.8 | 0.1, 90.00 | 0.5, 90.00 |" in text
