"""Settings files such as prune.yaml: the options of a command, read from YAML or written to it.

The keys are the flags without their dashes, as block_size for --block-size, and follow from the
parameters of the command: there is no second list of options.
"""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import typer
import yaml

from chita.errors import ChitaError
from chita.files.run_folder import CONFIG_FILE, is_of_earlier_run
from chita.files.yaml_file import read_yaml
from chita.pruning.options.declaration import check_names

SUFFIXES = (".yaml", ".yml")
FILE = "FILE"  # the metavar of an option whose file may be a part of the settings file
_OTHER = "Network, data and output"  # the heading of options without a panel of their own
_WIDTH = 88

_HEADER = """\
Settings of `chita {command}`: run them by `chita {command} {file}`. Options of the command line
take precedence. Keys are the flags without their dashes. Lines that start with # show defaults.
"""


def read_settings_file(context: typer.Context, parameter: typer.CallbackParam, given: str) -> str:
    """Return the first argument of a command; read it from a settings file if it names one.

    The other settings of the file become the defaults of the command, so that options of the
    command line take precedence. The parameter must be eager, to be read before the others.

    Raises:
        ChitaError: the file cannot be read, a key is unknown or a value is of a wrong type.
    """
    if not given.endswith(SUFFIXES):
        return given
    known = settings_of(context.command)
    _check_current(Path(given))
    content = _read_mapping(Path(given))
    check_names(content, known, f"chita {context.info_name}, in {given}")
    first = content.pop(parameter.name or "", None)
    if not isinstance(first, str) or first.endswith(SUFFIXES):
        raise ChitaError(
            f"{given} must have {parameter.name}, the first argument of the command, got {first!r}"
        )
    values = {key: value for key, value in content.items() if value is not None}
    context.default_map = {
        known[key].name: _checked(context, known[key], key, value, given)
        for key, value in values.items()
    }
    return first


def _check_current(path: Path) -> None:
    """Raise a ChitaError if a file is of the run before the unfinished one in its folder."""
    if path.name == CONFIG_FILE and is_of_earlier_run(path):
        raise ChitaError(
            f"{path} has the settings of the run before the unfinished one in {path.parent}: "
            "continue that run with its command and --resume, or copy the file to another folder "
            "to use it"
        )


def settings_of(command: Any) -> dict[str, Any]:
    """Return the parameters of a command of typer by their keys in a settings file."""
    return {_key(each): each for each in command.params if each.name != "help"}


def render_settings(command: Any, file: str, values: Mapping[str, Any]) -> str:
    """Return the text of a settings file with all options of a command and their help.

    Args:
        command: the command of typer.
        file: the name of the file, for its header.
        values: the settings that take effect; the others are comments with the defaults.
    """
    groups: dict[str, list[str]] = {_OTHER: []}
    parameters = settings_of(command)
    first = {key: each for key, each in parameters.items() if each.param_type_name == "argument"}
    for key, each in {**first, **parameters}.items():
        panel = getattr(each, "rich_help_panel", None) or _OTHER
        lines = groups.setdefault(panel, [])
        lines.extend(_entry(key, each, values))
    parts = [_comment(_HEADER.format(command=command.name, file=file))]
    for panel, lines in groups.items():
        parts.append("\n".join([f"# --- {panel} ---", "", *lines]))
    return "\n\n".join(parts)


def _entry(key: str, parameter: Any, values: Mapping[str, Any]) -> Iterator[str]:
    yield _comment(parameter.help or "")
    if key in values:
        yield yaml.safe_dump({key: values[key]}).rstrip()
    else:
        yield "# " + yaml.safe_dump({key: _default(parameter)}).rstrip()
    yield ""


def _default(parameter: Any) -> Any:
    if parameter.default is None and _is_repeatable(parameter):
        return {} if _takes_pairs(parameter) else []
    return parameter.default


def _comment(text: str) -> str:
    return textwrap.fill(
        " ".join(text.split()),
        _WIDTH,
        initial_indent="# ",
        subsequent_indent="# ",
        break_on_hyphens=False,
    )


def _read_mapping(path: Path) -> dict[str, Any]:
    content = read_yaml(path)
    if not isinstance(content, dict) or not all(isinstance(key, str) for key in content):
        raise ChitaError(
            f"{path} must have settings by name, such as network: mlpnet, got {content!r:.60}"
        )
    return {key.replace("-", "_"): value for key, value in content.items()}


def _checked(context: typer.Context, parameter: Any, key: str, value: Any, file: str) -> Any:
    """Return the text of a value as on the command line, after a check of its type."""
    where = f"{file}: {key}"
    if parameter.metavar == FILE and isinstance(value, Mapping):
        return file  # the content of the file, in this one
    text = _as_text(parameter, value, where)
    try:
        parameter.process_value(context, text)
    except typer.BadParameter as error:
        raise ChitaError(f"{where} is {value!r}: {error.message}") from None
    return text


def _as_text(parameter: Any, value: Any, where: str) -> Any:
    flag, repeatable = bool(getattr(parameter, "is_flag", False)), _is_repeatable(parameter)
    if flag or isinstance(value, bool):
        if not (flag and isinstance(value, bool)):
            what = "true or false" if flag else "a number or a text"
            raise ChitaError(f"{where} must be {what}, got {value!r}")
        return value
    if repeatable and _takes_pairs(parameter) and isinstance(value, Mapping):
        return [f"{name}={_literal(each, f'{where}: {name}')}" for name, each in value.items()]
    values = value if repeatable and isinstance(value, list) else [value]
    if not all(isinstance(each, (str, int, float)) for each in values):
        what = "a list of texts" if repeatable else "a number or a text"
        raise ChitaError(f"{where} must be {what}, got {value!r}")
    texts = [str(each) for each in values]
    return texts if repeatable else texts[0]


def _literal(value: Any, where: str) -> str:
    """Return the text of a value that the command line reads as the same value."""
    text = repr(value)
    try:
        ast.literal_eval(text)
    except (ValueError, SyntaxError):  # such as a date, or an infinite number
        raise ChitaError(
            f"{where} must be a number, true, false, null, a text, or a list or dict of them, got "
            f"{value!r}; put a text in quotes"
        ) from None
    return text


def _is_repeatable(parameter: Any) -> bool:
    return bool(getattr(parameter, "multiple", False))


def _takes_pairs(parameter: Any) -> bool:
    return "=" in (parameter.metavar or "")


def _key(parameter: Any) -> str:
    """Return the key of a parameter: its name, or its longest flag without dashes."""
    if parameter.param_type_name == "argument":
        return str(parameter.name)
    return str(max(parameter.opts, key=len)).lstrip("-").replace("-", "_")
