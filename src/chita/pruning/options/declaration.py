"""How an option is declared: once, with its default, its check and its help text.

An option is a field of a dataclass, and everything else about it is in the field's metadata:

    rounds: int = option(
        1, "Number of rounds.", must_be(is_count, "an integer of at least 1"), panel="Method"
    )

The check runs when the dataclass is created, the docstrings of `PruneConfig` and `chita.prune` list
the option, and `chita prune` accepts it as `--rounds` (`cli/prune_options.py`). To add an option of
`chita.prune`, add such a field to `PruneOptions` in `method.py`, to `SupportOptions` in
`support.py`, or to `RunOptions` in `run.py`.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Collection, Iterable
from dataclasses import MISSING, dataclass, field, fields, replace
from typing import Any, Literal, TypeVar

from chita.errors import ChitaError, closest, is_one_of, require

Check = Callable[[str, Any], object]  # (name, value); raises ChitaError if the value is wrong
Reader = Callable[[str, Any], Any]  # (flag, text or list of texts) -> value
Panel = Literal["Goal", "Method", "Stages", "Data", "Layers", "Resources"]

T = TypeVar("T")

OPTION = "option"  # the key of an Option in the metadata of a field


@dataclass(frozen=True)
class Option:
    """The declaration of an option.

    Attributes:
        help: what the option does, in one or two sentences; names of options are in backticks.
        check: raises ChitaError for a wrong value; None is allowed where it is the default.
        panel: the group of `chita prune --help` that lists the option.
        details: more about it, for the API documentation only.
        read: turns the text of the command line into the value, where the annotated type alone
            does not determine how.
        repeatable: whether the command line accepts the option several times; `read` then
            receives a list.
        metavar: how the help of the command line shows the value; its type by default.
        least: the smallest number that the command line accepts.
        name: the name of the field.
        annotation: the annotation of the field.
        default: the default of the field; None for a required option.
        required: whether the field has no default.
    """

    help: str
    check: Check
    panel: Panel
    details: str = ""
    read: Reader | None = None
    repeatable: bool = False
    metavar: str | None = None
    least: int | None = None
    name: str = ""
    annotation: str = ""
    default: Any = None
    required: bool = False

    def describe(self) -> str:
        """Return the entry of a docstring: name, annotation, help, details and default."""
        shown = "" if self.default is None else f"Default: {self.default!r}."
        text = " ".join(part for part in (self.help, self.details, shown) if part)
        return f"{self.name} ({self.annotation}): {text}"


def option(
    default: T,
    help: str,
    check: Check,
    *,
    panel: Panel,
    details: str = "",
    read: Reader | None = None,
    repeatable: bool = False,
    metavar: str | None = None,
    least: int | None = None,
) -> T:
    """Return a field with this default that declares an option; see `Option` for the arguments."""
    declared = Option(help, check, panel, details, read, repeatable, metavar, least)
    return field(default=default, metadata={OPTION: declared})


def options_of(declarations: type[Any]) -> dict[str, Option]:
    """Return the options that a dataclass declares, by name and in order."""
    found = {}
    for each in fields(declarations):
        required = each.default is MISSING
        found[each.name] = replace(
            each.metadata[OPTION],
            name=each.name,
            annotation=str(each.type),
            default=None if required else each.default,
            required=required,
        )
    return found


def defaults_of(declarations: type[Any]) -> dict[str, Any]:
    """Return the defaults of the options that a dataclass declares; None for required options."""
    return {name: declared.default for name, declared in options_of(declarations).items()}


def check_values(declared: Any) -> None:
    """Check the value of every option of an instance.

    Raises:
        ChitaError: a value is wrong.
    """
    for name, declaration in options_of(type(declared)).items():
        value = getattr(declared, name)
        if value is not None or declaration.default is not None or declaration.required:
            declaration.check(name, value)


def check_names(names: Iterable[str], known: Collection[str], where: str) -> None:
    """Raise a ChitaError for the first unknown name, with a suggestion if a known name is close.

    Args:
        names: the names to check.
        known: the names of all options.
        where: the function that takes the options, for the message.
    """
    for name in names:
        if name not in known:
            longer = (option for option in known if name.startswith(f"{option}_"))
            near = next(longer, None) or closest(name, known)
            hint = f"did you mean {near!r}? The" if near else "the"
            raise ChitaError(
                f"{name!r} is not an option of {where}; {hint} options are {sorted(known)}"
            )


def must_be(holds: Callable[[Any], bool], what: str) -> Check:
    """Return a check that accepts the values for which `holds` is true.

    Args:
        holds: whether a value is accepted.
        what: the description of valid values, for the message.
    """
    return lambda name, value: require(name, value, holds, what)


def one_of(names: Collection[str]) -> Check:
    """Return a check that accepts these names; `names` may grow later, as a registry does."""

    def check(name: str, value: Any) -> None:
        require(name, value, lambda given: is_one_of(given, names), f"one of {sorted(names)}")

    return check


def either(words: Collection[str], holds: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """Return a condition that is true for these words, and for other values if `holds` is."""
    return lambda value: value in words if isinstance(value, str) else holds(value)


def describe_options(declarations: type[Any], heading: str) -> str:
    """Return a section of a docstring that lists the options of a dataclass."""
    entries = [
        textwrap.fill(
            entry.describe(),
            width=96,
            initial_indent=" " * 4,
            subsequent_indent=" " * 8,
            break_on_hyphens=False,
        )
        for entry in options_of(declarations).values()
    ]
    return "\n".join([f"{heading}:", *entries])


def add_options(docstring: str | None, declarations: type[Any], heading: str) -> str:
    """Return a docstring with a section on the options of a dataclass at its end."""
    lead = inspect.cleandoc(docstring or "")
    return f"{lead}\n\n{describe_options(declarations, heading)}\n"
