"""The options of `chita.prune` on the command line."""

from __future__ import annotations

import re

import pytest
from typer.testing import CliRunner

from chita import PruneConfig
from chita.cli.app import app
from chita.cli.prune_options import flag_of
from chita.pruning.options.declaration import options_of


def shown(text: str) -> str:
    """The text without styles, frames and line breaks."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", text)
    return re.sub(r"\s+", " ", plain.replace("│", " "))


def test_help_lists_every_option_in_its_panel() -> None:
    done = CliRunner().invoke(app, ["prune", "--help"], env={"COLUMNS": "120"})
    text = shown(done.stdout)
    assert done.exit_code == 0
    for name, declared in options_of(PruneConfig).items():
        assert f"{flag_of(name)} " in text
        assert f"─ {declared.panel} ─" in text
    assert "--first-order --no-first-order" in text
    assert "--no-strict" not in text
    assert "--max-loss-increase or --min-accuracy" in text  # not in backticks


@pytest.mark.parametrize("arguments", [["--seed", "-1"], ["--stages", "many"], ["--rounds", "3"]])
def test_what_typer_cannot_parse_is_a_usage_error(arguments: list[str]) -> None:
    done = CliRunner().invoke(app, ["prune", "mlpnet", *arguments])
    assert done.exit_code == 2
