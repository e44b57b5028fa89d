"""The command `chita bench`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from chita.cli.import_option import Imports
from chita.cli.launch import pick_device
from chita.cli.shared_options import Device, Overwrite, out_folder
from chita.cli.threads import Threads
from chita.errors import ChitaError
from chita.files.run_folder import writing_to
from chita.files.single_file import check_new
from chita.paper.benchmark import Bench, Benchmark, run_benchmark
from chita.paper.cells import CELLS_FILE
from chita.paper.first_order import FirstOrder
from chita.paper.gradual import QUICK_SETTINGS, Gradual
from chita.paper.imagenet import QUICK as QUICK_IMAGENET
from chita.paper.imagenet import ImageNetBench
from chita.paper.language import LanguageBench
from chita.paper.language_layout import TRAINED
from chita.paper.language_models import small as small_language_model
from chita.paper.networks import find_subjects
from chita.paper.objective import Objective
from chita.paper.recovery import QUICK_GROUPS, RecoveryBench
from chita.paper.ridge import RidgeEffect
from chita.paper.robustness.benchmark import QUICK_NETWORKS, Robustness
from chita.paper.runtime import Runtime
from chita.paper.scale.benchmark import Scale
from chita.paper.schedules import QUICK_SETTINGS as QUICK_STAGES
from chita.paper.schedules import Schedules
from chita.paper.sentence_encoders import small as small_encoder
from chita.paper.sentences import SentenceBench, contenders
from chita.paper.settings import quick_grid
from chita.paper.stepsize import StepSize
from chita.paper.table1 import Table1
from chita.report.console import show
from chita.report.figures import new_figure
from chita.report.page.benchmark_charts import OLD_NAMES

KINDS = ("md", "csv", "json", "png")  # the suffixes of the files of a report
SEEDS, QUICK_SEEDS = 5, 1
TRAINING_SEEDS = 3  # for benchmarks whose cells are trainings of many epochs


@dataclass(frozen=True)
class Sizes:
    """A benchmark in the size of the paper, and one that takes a minute or two.

    Attributes:
        full: the benchmark on the paper's networks.
        quick: the benchmark on the embedded network.
        seeds: the default number of seeds of the full benchmark.
    """

    full: Benchmark
    quick: Benchmark
    seeds: int = SEEDS


BENCHMARKS = {
    "table1": Sizes(Table1(), Table1({"mlpnet": (0.9, 0.98)}, quick_grid)),
    "runtime": Sizes(Runtime(), Runtime(samples=100, quick=True)),
    "objective": Sizes(Objective(), Objective((0.8, 0.9, 0.98), samples=200, quick=True)),
    "schedules": Sizes(Schedules(), Schedules(settings=QUICK_STAGES)),
    "ridge": Sizes(
        RidgeEffect(),
        RidgeEffect(300, iterations=(0, 5, 20, 100, 300), sparsities=(0.9, 0.98)),
    ),
    "first-order": Sizes(
        FirstOrder(), FirstOrder((1, 4, 16), samples=300, stages=5, trace_images=2000)
    ),
    "stepsize": Sizes(StepSize(), StepSize()),
    "gradual": Sizes(
        Gradual(), Gradual((0.9,), epochs=8, settings=QUICK_SETTINGS), seeds=TRAINING_SEEDS
    ),
    "scale": Sizes(
        Scale(),
        Scale(
            networks=("resnet20",),
            weights=(100_000, 1_000_000),
            rows=(100, 300, 1000),
            sparsities=(0.5, 0.8, 0.95),
            samples=250,
        ),
    ),
    "recovery": Sizes(
        RecoveryBench(),
        RecoveryBench(QUICK_GROUPS, options={"budget": "fast"}),
        seeds=TRAINING_SEEDS,
    ),
    "language": Sizes(
        LanguageBench(),
        LanguageBench(
            (small_language_model,),
            (0.5, "2:4"),
            options={name: {"budget": "8 steps"} for name in TRAINED},
        ),
        seeds=1,
    ),
    "sentences": Sizes(
        SentenceBench(),
        SentenceBench((small_encoder,), (0.5, "2:4"), contenders(steps=8)),
        seeds=1,
    ),
    "imagenet": Sizes(ImageNetBench(), QUICK_IMAGENET, seeds=1),
    "robustness": Sizes(Robustness(), Robustness(QUICK_NETWORKS, samples=200)),
}
NAMES = ", ".join(BENCHMARKS)


def bench_command(
    name: Annotated[str, typer.Argument(metavar="NAME", help=f"One of {NAMES}.")],
    out: Annotated[Path, out_folder("Folder for the cells, the tables and the figure.")] = Path(
        "runs/bench"
    ),
    checkpoints: Annotated[
        Path | None,
        typer.Option(help="Folder of the paper's checkpoints; by default the embedded MLPNet."),
    ] = None,
    seeds: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Number of seeds: by default 5, 3 for gradual and recovery, 1 for imagenet, "
            "for language, for sentences and with --quick.",
        ),
    ] = None,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick",
            help="Use the embedded MLPNet, or a small model of text, in a minute or two.",
        ),
    ] = False,
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TEXT",
            help="Compute only cells with this network, method, sparsity or other value, such as "
            "resnet20 or 0.9. Repeatable; values of one kind are alternatives.",
        ),
    ] = None,
    device: Device = None,
    threads: Threads = None,
    imagenet: Annotated[
        Path | None,
        typer.Option(
            help="Folder of ImageNet (train/ and val/, or imagenet-sample/ and imagenet-val2/), "
            "for the networks that need it."
        ),
    ] = None,
    texts: Annotated[
        Path | None,
        typer.Option(
            help="Folder of WikiText-2 (wiki.test.raw and valid.txt), for language and sentences."
        ),
    ] = None,
    imports: Imports = None,
    overwrite: Overwrite = False,
) -> None:
    """Reproduce a table or figure of the paper; finished cells in OUT are reused."""
    name = OLD_NAMES.get(name, name)
    if name not in BENCHMARKS:
        raise ChitaError(f"benchmark {name!r} is unknown; known are {NAMES}")
    if quick and not (checkpoints is None and imagenet is None):
        raise ChitaError(
            "--quick runs on the embedded network: leave out --checkpoints and --imagenet"
        )
    with writing_to(out):
        if not (out / CELLS_FILE).exists():  # otherwise the files are those of a benchmark
            for kind in KINDS:
                check_new(out / f"{name}.{kind}", overwrite=overwrite)
        new_figure()  # a missing matplotlib raises an error before the work
        place = pick_device(device)
        bench = Bench(
            find_subjects(checkpoints, device=place, out=out, imagenet=imagenet),
            seeds or (QUICK_SEEDS if quick else BENCHMARKS[name].seeds),
            device=place,
            folder=out,
            texts=texts,
        )
        benchmark = BENCHMARKS[name].quick if quick else BENCHMARKS[name].full
        run_benchmark(name, benchmark, bench, out, only or ())
    files = [out / f"{name}.{kind}" for kind in KINDS]
    if files[0].exists():
        show(", ".join(map(str, files)))
