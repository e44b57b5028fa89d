from pathlib import Path

import pytest

from chita.cli import bench as command
from chita.errors import ChitaError
from chita.paper import stepsize
from tests.paper.small import read_csv
from tests.support.command import invoke
from tests.support.messages import naming


def bench(*arguments: str) -> str:
    return invoke("bench", *arguments)


@pytest.mark.slow
def test_the_command_writes_four_files_and_resumes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []
    monkeypatch.setattr(
        stepsize,
        "random_problem",
        lambda seed, make=stepsize.random_problem: calls.append(seed) or make(seed),
    )
    out = tmp_path / "new" / "run"
    text = bench("stepsize", "--out", str(out), "--quick", "--device", "cpu")
    for kind in ("csv", "json", "md", "png"):
        assert (out / f"stepsize.{kind}").stat().st_size > 100
        assert f"stepsize.{kind}" in text
    bench("stepsize", "--out", str(out), "--quick", "--seeds", "2")
    assert calls == [0, 1]
    assert {row["seed"] for row in read_csv(out / "stepsize.csv")} == {"0", "1"}


def test_a_part_of_a_benchmark_is_run(tmp_path: Path) -> None:
    quick = ("stepsize", "--out", str(tmp_path), "--quick", "--seeds", "3")
    with pytest.raises(ChitaError, match=naming("--only", "resnet20", "seed 0, 1, 2")):
        bench(*quick, "--only", "resnet20")
    assert list(tmp_path.iterdir()) == []
    for seed in "20":
        bench(*quick, "--only", seed)
    assert {row["seed"] for row in read_csv(tmp_path / "stepsize.csv")} == {"0", "2"}


@pytest.mark.parametrize("name", ["language", "sentences", "robustness", "table1"])
def test_a_text_that_matches_no_cell_leaves_nothing(name: str, tmp_path: Path) -> None:
    """Nor the small network that the benchmark would write."""
    with pytest.raises(ChitaError, match=naming("--only", "nothing")):
        bench(name, "--quick", "--only", "nothing", "--out", str(tmp_path / "new"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["table2"], naming("table2", "table1", "first-order", "stepsize")),
        (
            ["table1", "--checkpoints", "nowhere"],
            naming(
                "--checkpoints",
                "nowhere",
                "mlpnet_mnist.safetensors",
                "resnet20_cifar10.safetensors",
            ),
        ),
        (
            ["table1", "--imagenet", "pictures"],
            naming("--imagenet", "pictures", "--checkpoints", "MobileNetV1", "ResNet50"),
        ),
        (["table1", "--device", "toaster"], "toaster"),
        (["table1", "--quick", "--checkpoints", "some"], naming("--quick", "--checkpoints")),
    ],
)
def test_what_is_wrong_is_named(
    tmp_path: Path, arguments: list[str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))  # without fetched weights
    with pytest.raises(ChitaError, match=message):
        bench(*arguments, "--out", str(tmp_path / "new" / "run"))
    assert not (tmp_path / "new").exists()


def test_a_folder_that_cannot_be_written_to_is_told_first(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ChitaError, match=naming(str(tmp_path / "file"))):
        bench("table1", "--out", str(tmp_path / "file"))


def test_every_benchmark_of_the_paper_is_there() -> None:
    assert list(command.BENCHMARKS) == [
        "table1", "runtime", "objective", "schedules", "ridge", "first-order", "stepsize",
        "gradual", "scale", "recovery", "language", "sentences", "imagenet", "robustness",
    ]  # fmt: skip


def test_the_default_number_of_seeds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seeds: dict[str, int] = {}
    monkeypatch.setattr(
        command, "run_benchmark", lambda name, _, bench, *__: seeds.update({name: bench.seeds})
    )
    for name in command.BENCHMARKS:
        bench(name, "--out", str(tmp_path))
    assert seeds.pop("gradual") == seeds.pop("recovery") == 3
    assert seeds.pop("language") == seeds.pop("sentences") == 1  # large networks
    assert seeds.pop("imagenet") == 1  # the error of 1,000 test images is larger than that of seeds
    assert set(seeds.values()) == {5}
    bench("gradual", "--out", str(tmp_path), "--seeds", "2")
    assert seeds["gradual"] == 2
    bench("gradual", "--out", str(tmp_path), "--quick")
    assert seeds["gradual"] == 1
