"""One declaration of each option: the API, the configuration and the command line follow."""

from __future__ import annotations

import inspect
from dataclasses import asdict, dataclass
from typing import Any

import pytest
import torch
import typer
import yaml
from torch import nn
from typer.testing import CliRunner

import chita
from chita import ChitaError, PruneConfig
from chita.cli.prune_options import read_options, with_prune_options
from chita.errors import is_count
from chita.pruning.config import resolve_config
from chita.pruning.options.declaration import describe_options, must_be, option, options_of
from tests.support.pruning import cut, points, tiny


@dataclass(frozen=True)
class Extended(PruneConfig):
    """PruneConfig with one more option, declared here and nowhere else."""

    rounds: int = option(
        2, "Number of rounds.", must_be(is_count, "an integer of at least 1"), panel="Method"
    )


def run_command(arguments: list[str]) -> tuple[str, dict[str, Any]]:
    """Return what a command with the extended options prints, and the options that it receives."""
    received: dict[str, Any] = {}

    def command(**options: Any) -> None:
        received.update(read_options(options, Extended))

    app = typer.Typer()
    app.command()(with_prune_options(command, Extended))
    done = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert done.exit_code == 0
    return done.stdout, received


def test_a_new_option_needs_one_declaration() -> None:
    config = Extended(sparsity=0.5)
    assert config.rounds == 2
    with pytest.raises(ChitaError, match=r"rounds must be an integer of at least 1, got 0"):
        Extended(sparsity=0.5, rounds=0)
    assert "rounds (int): Number of rounds. Default: 2." in describe_options(Extended, "Options")
    stored = yaml.safe_load(yaml.safe_dump(asdict(Extended(sparsity=0.5, rounds=7))))
    assert Extended(**stored) == resolve_config(config, {"rounds": 7})
    assert run_command([])[1]["rounds"] == 2
    assert run_command(["--rounds", "5"])[1]["rounds"] == 5
    shown, _ = run_command(["--help"])
    assert "--rounds" in shown and "Number of rounds." in shown


def test_every_option_has_a_help_text_and_is_documented() -> None:
    for name, declared in options_of(PruneConfig).items():
        assert declared.help.endswith(".")
        for documented in (chita.prune, PruneConfig):
            text = inspect.getdoc(documented) or ""
            assert f"\n    {name} (" in text


def test_the_configuration_survives_yaml() -> None:
    config = PruneConfig(
        sparsity=0.5,
        method="chita-bso",
        include=["fc*"],
        at_most={"fc1*": 0.25},
        first_order=False,
        ridge=1e-3,
        memory="8GB",
    )
    stored = yaml.safe_load(yaml.safe_dump(asdict(config), sort_keys=False))
    assert list(stored) == list(options_of(PruneConfig))
    assert PruneConfig(**stored) == config


def pruned(*arguments: Any, **keywords: Any) -> torch.Tensor:
    """Return the first weight of a tiny network after `chita.prune` with these arguments."""
    model = tiny()
    chita.prune(
        model, cut(points(24), 5), *arguments, progress=False, **{"recover": False, **keywords}
    )
    assert isinstance(model[0], nn.Linear)
    return model[0].weight.detach()


def test_a_configuration_and_keywords_give_the_same_result() -> None:
    keywords: dict[str, Any] = {"sparsity": 0.5, "method": "chita-bso", "batch": 2, "ridge": 0.1}
    expected = pruned(**keywords)
    config = PruneConfig(**keywords, recover=False)
    assert torch.equal(pruned(config), expected)
    assert torch.equal(pruned(config=config), expected)
    other = PruneConfig(**{**keywords, "sparsity": 0.25, "ridge": 1.0}, recover=False)
    assert not torch.equal(pruned(other), expected)
    assert torch.equal(pruned(other, sparsity=0.5, ridge=0.1), expected)


def test_a_function_overrides_the_loss_of_the_configuration() -> None:
    keywords: dict[str, Any] = {"sparsity": 0.5, "method": "chita-bso", "batch": 2, "ridge": 0.1}

    def loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return outputs.square().mean()

    distilled = PruneConfig(loss="distill", **keywords, recover=False)
    assert torch.equal(pruned(distilled, loss=loss), pruned(loss=loss, **keywords))
    assert torch.equal(pruned(distilled, loss=None), pruned(**keywords))


def test_sparsity_may_be_a_pattern_or_follow_from_a_floor() -> None:
    config = resolve_config(None, {"sparsity": "2:4"})
    assert (config.sparsity, config.pattern) == (0.5, "2:4")
    assert resolve_config(None, {"max_loss_increase": 0.1}).sparsity == 0.99
    with pytest.raises(ChitaError, match=r"sparsity.*None"):
        resolve_config(None, {})


def test_an_unknown_option_is_named_with_the_nearest_one() -> None:
    with pytest.raises(ChitaError, match=r"'sparsty' .*'sparsity'"):
        chita.prune(tiny(), [points(4)], sparsty=0.5, recover=False)
    with pytest.raises(ChitaError, match=r"'xyzzy' .*'sparsity'"):
        chita.prune(tiny(), [points(4)], sparsity=0.5, xyzzy=1, recover=False)
    with pytest.raises(ChitaError, match=r"config .*PruneConfig.* float"):
        chita.prune(tiny(), [points(4)], 0.5, recover=False)  # type: ignore[arg-type]


@pytest.mark.parametrize(("name", "value"), [("first_order", 0), ("strict", 1)])
def test_flags_are_checked(name: str, value: Any) -> None:
    with pytest.raises(ChitaError, match=f"{name} must be .* got {value}"):
        PruneConfig(sparsity=0.5, **{name: value}, recover=False)
