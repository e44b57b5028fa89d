"""Accuracy of CHITA++ after each stage for several sparsity schedules (fig:training_loss)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import TYPE_CHECKING, Any

from chita.model.accuracy import accuracy
from chita.paper.average import average
from chita.paper.benchmark import Bench
from chita.paper.cells import Cell, Record
from chita.paper.networks import Subject
from chita.paper.panels import draw_lines
from chita.paper.settings import version_key
from chita.paper.stages import run_stages
from chita.paper.write import Report, Row, as_markdown
from chita.pruning.schedule import sparsities

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MESHES = ("exponential", "geometric", "linear", "polynomial", "constant")
PAPER_MESH = "exponential"
AUGMENTED, PLAIN = "augmented", "plain"
EXPLANATION = """\
The paper shows this figure for ResNet20 without numbers. Its text states that the linear mesh is
ahead of the exponential one in the first stages and drops in the last two, and that the exponential
mesh, whose steps are small where sparsity is high, ends best. The geometric and the polynomial mesh
are not in the paper. "augmented" images are padded, cropped and flipped as in training, as in the
authors' code for ResNet20; "plain" images are the unchanged images of the data set."""


@dataclass(frozen=True)
class StageSetting:
    """The settings shared by all stages of a run. They are part of the keys of cells.

    Attributes:
        lam: the ridge lambda.
        samples: n, the rows of A.
        batch: m, the samples averaged into a row; the first-order term is scaled by 1/m.
        first_order: whether to include the first-order term in the model of the loss.
        block_size: the size of the independent blocks; None for no blocks.
        hold: the share of the stages, at the end, that stay at the target sparsity.
    """

    lam: float
    samples: int = 1000
    batch: int = 16
    first_order: bool = True
    block_size: int | None = None
    hold: float = 0.0

    @property
    def alpha(self) -> float:
        """The scale of the first-order term."""
        return 1 / self.batch if self.first_order else 0.0


SETTINGS = {"mlpnet": StageSetting(lam=1e-3), "resnet20": StageSetting(lam=1e-2)}
QUICK_SETTINGS = {name: replace(each, samples=300) for name, each in SETTINGS.items()}


@dataclass(frozen=True)
class Schedules:
    """ResNet20 pruned to 90 % in 15 stages, as in the paper.

    Attributes:
        stages: f, the number of stages.
        start: tau_1, the sparsity of the first stage.
        target: tau_f, the sparsity of the last stage.
        settings: the setting of each network.
    """

    stages: int = 15
    start: float = 0.2
    target: float = 0.9
    settings: Mapping[str, StageSetting] = field(default_factory=lambda: SETTINGS)

    def cells(self, bench: Bench) -> list[Cell]:
        subject = bench.subject("resnet20")
        return [
            self._cell(subject, seed, mesh, augment)
            for seed, (mesh, augment) in product(range(bench.seeds), _variants(subject))
        ]

    def _cell(self, subject: Subject, seed: int, mesh: str, augment: bool) -> Cell:
        setting = self.settings[subject.network.name]
        plan = sparsities(
            mesh, self.target, stages=self.stages, start=self.start, hold=setting.hold
        )
        key = {
            "bench": "schedules",
            "network": subject.name,
            "schedule": mesh,
            "images": AUGMENTED if augment else PLAIN,
            "seed": seed,
            "stages": self.stages,
            "start": self.start,
            "target": self.target,
            **vars(setting),
            **version_key("chita++"),
        }

        def compute() -> dict[str, Any]:
            models = run_stages(
                subject,
                seed,
                plan,
                samples=setting.samples,
                batch=setting.batch,
                lam=setting.lam,
                alpha=setting.alpha,
                block_size=setting.block_size,
                augment=augment,
            )
            return {"sparsities": plan, "accuracies": [accuracy(m, subject.test) for m in models]}

        return Cell(key, compute)

    def report(self, records: Sequence[Record]) -> Report:
        columns = ("network", "schedule", "images", "stage", "sparsity")
        rows = average(_by_stage(records), columns, "accuracy")
        return Report(
            title=f"CHITA++ to {self.target:.0%} in {self.stages} stages: accuracy after each",
            rows=rows,
            text=f"{EXPLANATION}\n\n{as_markdown(rows)}",
            draw=lambda figure: _draw(figure, rows),
        )


def _variants(subject: Subject) -> Iterator[tuple[str, bool]]:
    """Yield each mesh and whether to augment the images.

    Images are augmented if they are in training; the paper's mesh is also run on plain images.
    """
    for mesh in MESHES:
        yield mesh, subject.augments
    if subject.augments:
        yield PAPER_MESH, False


def _by_stage(records: Sequence[Record]) -> list[Record]:
    """Return a record for each stage."""
    return [
        {
            "key": {**record["key"], "stage": stage, "sparsity": round(sparsity, 4)},
            "accuracy": figure,
        }
        for record in records
        for stage, (sparsity, figure) in enumerate(
            zip(record["sparsities"], record["accuracies"], strict=True), start=1
        )
    ]


def _draw(figure: Figure, rows: Sequence[Row]) -> None:
    """Draw the schedules (fig:iter_schedules) and the accuracy after each stage."""
    figure.set_size_inches(11, 4)
    plans, results = figure.subplots(1, 2)
    plain_too = len({row["images"] for row in rows}) > 1
    named = [
        {**row, "line": f"{row['schedule']}, {row['images']}" if plain_too else row["schedule"]}
        for row in rows
    ]
    once = {(row["schedule"], row["stage"]): {**row, "standard_error": None} for row in rows}
    draw_lines(plans, list(once.values()), line="schedule", x="stage", y="sparsity")
    draw_lines(results, named, line="line", x="stage", y="accuracy")
