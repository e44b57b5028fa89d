"""The options of `chita.prune` on the command line, derived from their declarations."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any, get_type_hints

import typer

from chita.pruning.config import PruneConfig
from chita.pruning.options.declaration import Option, options_of


def with_prune_options(
    command: Callable[..., None], declarations: type[PruneConfig] = PruneConfig
) -> Callable[..., None]:
    """Return a command whose signature, which typer reads, also has the options of `chita.prune`.

    Args:
        command: takes the options as `**options`, beside parameters of its own.
        declarations: the dataclass that declares the options.
    """
    own = inspect.signature(command, eval_str=True).parameters.values()
    parameters = [
        *prune_parameters(declarations),
        *(parameter for parameter in own if parameter.kind is not inspect.Parameter.VAR_KEYWORD),
    ]

    @functools.wraps(command)
    def run(**arguments: Any) -> None:
        command(**arguments)

    by_keyword = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in parameters]
    run.__signature__ = inspect.Signature(by_keyword)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    return run


def prune_parameters(declarations: type[PruneConfig]) -> list[inspect.Parameter]:
    """Return a parameter, annotated for typer, for each declared option."""
    hints = get_type_hints(declarations)
    return [
        inspect.Parameter(
            option.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=option.default,
            annotation=Annotated[_text_type(option, hints[option.name]), _info(option, hints)],
        )
        for option in options_of(declarations).values()
    ]


def read_options(
    given: Mapping[str, Any], declarations: type[PruneConfig] = PruneConfig
) -> dict[str, Any]:
    """Return the values of the options that the command line sets or has a default for.

    Args:
        given: the values that typer parsed, by name.
        declarations: the dataclass that declares the options.

    Raises:
        ChitaError: a text does not have the form that its option requires.
    """
    values: dict[str, Any] = {}
    for name, option in options_of(declarations).items():
        text = given[name]
        if text is None or text == []:
            values[name] = None
        else:
            values[name] = text if option.read is None else option.read(flag_of(name), text)
    return values


def flag_of(name: str) -> str:
    """Return the flag of an option: --block-size for block_size."""
    return "--" + name.replace("_", "-")


def _info(option: Option, hints: Mapping[str, Any]) -> Any:
    """Return typer's description of an option."""
    flag = flag_of(option.name)
    undecided = hints[option.name] == (bool | None)
    more = " Repeatable." if option.repeatable else ""
    return typer.Option(
        f"{flag}/--no-{flag[2:]}" if undecided else flag,
        help=_with_flags(option.help, hints) + more,
        rich_help_panel=option.panel,
        min=option.least,
        metavar=option.metavar,
    )


def _text_type(option: Option, hint: Any) -> Any:
    """Return the type that typer parses: that of the option, or text that `read` takes."""
    if option.repeatable:
        return list[str] | None
    if option.read is not None:
        return str | None if option.default is None else str
    return hint


def _with_flags(text: str, hints: Mapping[str, Any]) -> str:
    """Replace names of options in backticks by their flags."""
    return re.sub(r"`(\w+)`", lambda m: flag_of(m[1]) if m[1] in hints else m[0], text)
