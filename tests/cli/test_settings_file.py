"""Settings files: `chita init`, `chita prune prune.yaml` and the config.yaml of a run."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import typer.main
import yaml

from chita.cli.app import app
from chita.cli.settings_file import settings_of
from chita.errors import ChitaError
from chita.files.run_folder import start_run
from tests.support.command import invoke
from tests.support.messages import naming

QUICK = {"network": "mlpnet", "method": "magnitude"}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def prune(*arguments: object) -> dict[str, Any]:
    record: dict[str, Any] = json.loads(invoke("prune", *arguments, "--json").splitlines()[-1])
    return record


def write(**settings: Any) -> str:
    Path("prune.yaml").write_text(yaml.safe_dump(settings))
    return "prune.yaml"


def test_init_writes_all_options_and_never_over_a_file() -> None:
    invoke("init")
    text = Path("prune.yaml").read_text()
    prune_command = typer.main.get_command(app).commands["prune"]  # type: ignore[attr-defined]
    known = settings_of(prune_command)
    assert yaml.safe_load(text) == {"network": "mlpnet", "sparsity": 0.9}
    assert set(re.findall(r"^(?:# )?(\w+): [^ ]*$", text, re.M)) >= set(known)
    assert max(map(len, text.splitlines())) <= 100
    with pytest.raises(ChitaError, match=naming("prune.yaml")):
        invoke("init")
    assert Path("prune.yaml").read_text() == text
    invoke("init", "other.yml")
    for wrong in ("settings.txt", "nowhere/prune.yaml"):
        with pytest.raises(ChitaError, match=naming(wrong)):
            invoke("init", wrong)


def test_a_failed_init_leaves_no_file(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(file: Path, content: bytes) -> int:
        with file.open("wb") as target:
            target.write(content[:10])
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "write_bytes", full)
        with pytest.raises(ChitaError, match=naming("prune.yaml", "No space left on device")):
            invoke("init")
    assert not list(Path().iterdir())
    invoke("init")


def test_the_defaults_of_the_file_are_those_of_the_command() -> None:
    """Every line that is a comment may become a setting without any effect."""
    invoke("init")
    settings = {}
    for line in Path("prune.yaml").read_text().splitlines():
        if found := re.fullmatch(r"(?:# )?(\w+: [^ ]*)", line):
            settings.update(yaml.safe_load(found[1]))
    plain = prune("mlpnet", "--method", "magnitude")
    again = prune(write(**{**settings, "method": "magnitude"}))
    assert plain["layers"] == again["layers"]


def test_the_command_line_takes_precedence() -> None:
    file = write(**QUICK, sparsity=0.5, at_most={"fc3*": 0.25}, exclude=["fc2.weight"])
    assert prune(file)["sparsity"] == pytest.approx(0.5, abs=1e-3)
    found = prune(file, "--sparsity", "0.8", "--exclude", "fc1.weight")
    assert found["sparsity"] == pytest.approx(0.8, abs=1e-3)
    assert [row["name"] for row in found["layers"]] == ["fc2.weight", "fc3.weight"]
    assert found["layers"][1]["sparsity"] <= 0.25
    assert prune(write(**QUICK, **{"val-split": None}, sparsity="2:4"))["pattern"] == "2:4"


def test_a_run_leaves_such_a_file_behind() -> None:
    options = ["--samples", "40", "--stages", "2", "--method", "chita++", "--seed", "3"]
    options += ["--layer", "fc3*=0.25", "--no-drop-dead", "--ridge", "1e-3", "--sparsity", "0.7"]
    invoke("prune", "mlpnet", *options, "--out", "first")
    invoke("prune", "first/config.yaml", "--out", "second")
    for name in ("model.safetensors", "masks.safetensors", "config.yaml"):
        assert (Path("first") / name).read_bytes() == (Path("second") / name).read_bytes()


def test_the_settings_of_the_run_before_an_unfinished_one_are_refused() -> None:
    """They are not those of the run that was started last; a copy of them may be used."""
    options = ("--method", "magnitude", "--sparsity", "0.5", "--out", "run")
    invoke("prune", "mlpnet", *options)
    start_run(Path("run"))
    with pytest.raises(ChitaError, match=naming("run/config.yaml", "--resume")):
        invoke("prune", "run/config.yaml")
    Path("copy.yaml").write_bytes(Path("run/config.yaml").read_bytes())
    assert prune("copy.yaml")["sparsity"] == pytest.approx(0.5, abs=1e-3)
    invoke("prune", "mlpnet", *options, "--resume")
    assert prune("run/config.yaml")["sparsity"] == pytest.approx(0.5, abs=1e-3)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("network: mlpnet\nsparsty: 0.5\n", naming("'sparsty'", "'sparsity'", "prune.yaml")),
        ("network: mlpnet\nsamples: many\n", naming("prune.yaml", "samples", "many")),
        ("network: mlpnet\nsamples: 10.5\n", naming("prune.yaml", "samples", "10.5")),
        ("network: mlpnet\nsamples: true\n", naming("prune.yaml", "samples", True)),
        ("network: mlpnet\nsamples: [1, 2]\n", naming("prune.yaml", "samples", "[1, 2]")),
        ("network: mlpnet\nsamples: {a: 1}\n", naming("prune.yaml", "samples", "{'a': 1}")),
        ("network: mlpnet\nrecover: maybe\n", naming("prune.yaml", "recover", "maybe")),
        ("network: mlpnet\nseed: 2026-11-16\n", naming("prune.yaml", "seed", "2026")),
        ("network: mlpnet\nat_most: 3\n", naming("--at-most", "3")),
        ("network: mlpnet\nset: {width: 3}\n", naming("mlpnet", "--set", "width")),
        ("network: m:f\nset: {day: 2026-11-16}\n", naming("prune.yaml", "set: day", "2026")),
        ("network: m:f\nset: {rates: [.inf]}\n", naming("prune.yaml", "set: rates", "inf")),
        ("network: 3\n", naming("prune.yaml", "network", 3)),
        ("network: prune.yaml\n", naming("prune.yaml", "network")),
        ("sparsity: 0.5\n", naming("prune.yaml", "network", None)),
        ("- mlpnet\n", naming("prune.yaml", "network")),
        ("", naming("prune.yaml", "network")),
        ("3: 4\n", naming("prune.yaml", "network")),
        ("network: [\n", naming("prune.yaml", "YAML")),
        ("a: &a [1,1,1]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\n", naming("prune.yaml", "'a'")),
        ("network: !!python/object/apply:os.system [ls]\n", naming("prune.yaml", "YAML")),
    ],
)
def test_wrong_settings_are_named(content: str, message: str) -> None:
    Path("prune.yaml").write_text(content)
    with pytest.raises(ChitaError, match=message):
        invoke("prune", "prune.yaml", "--method", "magnitude")


def test_aliases_that_stand_for_too_much() -> None:
    lines = ["network: mlpnet", "a: &a0 [x,x,x,x,x,x,x,x,x]"]
    lines += [f"b{i}: &a{i + 1} [{','.join([f'*a{i}'] * 9)}]" for i in range(9)]
    Path("prune.yaml").write_text("\n".join(lines))
    with pytest.raises(ChitaError, match=naming("prune.yaml", "aliases")):
        invoke("prune", "prune.yaml")


def test_a_file_that_does_not_exist() -> None:
    with pytest.raises(ChitaError, match=naming("absent.yaml")):
        invoke("prune", "absent.yaml")
