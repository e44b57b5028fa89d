"""The command line, in this process."""

from __future__ import annotations

from typer.testing import CliRunner

from chita.cli.app import app


def invoke(*arguments: object) -> str:
    """What `chita ARGUMENTS` writes on its standard output; its errors are raised."""
    done = CliRunner().invoke(app, [str(word) for word in arguments], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout
