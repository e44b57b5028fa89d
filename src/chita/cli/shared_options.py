"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from chita.cli.settings_file import read_settings_file
from chita.data import NAMES
from chita.data.text import CONTEXT, SEQUENCES, TextSize
from chita.errors import ChitaError
from chita.model.losses import Loss
from chita.references.loss import load_loss
from chita.references.python_object import FORMS, is_reference
from chita.references.resolve import NETWORK_FORMS
from chita.zoo import NETWORKS
from chita.zoo.network_data import IMAGE_FOLDER, TEXT


def read_folder_option(given: str) -> Path:
    """Return the folder of --out; an empty one, as of an unset variable, is an error."""
    if not str(given).strip():
        raise typer.BadParameter(f"it must be a folder, got {given!r}; give . for the current one")
    return Path(given)


def out_folder(help_text: str) -> Any:
    """Return the option --out of a command that writes several files to a folder."""
    return typer.Option("--out", parser=read_folder_option, metavar="DIR", help=help_text)


def read_loss(given: str | None) -> tuple[str | None, Loss | None]:
    """Return the name of a loss, or the function that a reference names; one of them is None."""
    if given is None or not is_reference(given):
        return given, None
    return None, load_loss(given)


def choose_data(data_name: str | None, text: Path | None) -> str | None:
    """Return the name of the calibration data, of --data or of --text."""
    if text is None:
        return data_name
    if data_name is not None:
        raise ChitaError(f"give --data {data_name} or --text {text}, not both")
    return f"{TEXT}{text}"


def text_size(context: int | None, sequences: int | None) -> TextSize:
    """Return how texts are cut, of --context and --sequences."""
    return TextSize(context, sequences or SEQUENCES)


NetworkName = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help=f"A network: {', '.join(NETWORKS)}; or yours: {NETWORK_FORMS}; or a YAML file with "
        "the options of this command.",
        is_eager=True,  # a YAML file sets the defaults of the other options
        callback=read_settings_file,
    ),
]
DataName = Annotated[
    str | None,
    typer.Option(
        "--data", help=f"One of {', '.join(NAMES)}, {IMAGE_FOLDER}DIR, {TEXT}FILE, {FORMS}."
    ),
]
TextFile = Annotated[
    Path | None,
    typer.Option(
        "--text",
        help=f"Text to calibrate a language model on; short for --data {TEXT}FILE.",
        metavar="FILE",
    ),
]
TestName = Annotated[
    str | None,
    typer.Option(
        "--test",
        help="Test data, named as those of --data; by default the test images of --data, if it "
        "has any.",
    ),
]
LossName = Annotated[
    str | None,
    typer.Option("--loss", help=f"Loss as in chita prune, or a function {FORMS}."),
]
Source = Annotated[
    str,
    typer.Argument(
        help=f"A checkpoint, a run folder, a network ({NETWORK_FORMS}), or a YAML file with the "
        "options of this command.",
        is_eager=True,
        callback=read_settings_file,
    ),
]
ExampleData = Annotated[
    str | None,
    typer.Option(
        "--data",
        help=f"Data whose first samples are the example inputs, as {FORMS}; by default those of "
        "the run, or random images.",
    ),
]
SourceNetwork = Annotated[
    str | None,
    typer.Option(
        "--network",
        help="The network of a checkpoint outside a run folder: a name of the zoo, or "
        f"{NETWORK_FORMS}.",
    ),
]
Include = Annotated[
    list[str] | None, typer.Option(help="Glob of parameter names to prune (repeatable).")
]
Exclude = Annotated[
    list[str] | None, typer.Option(help="Glob of parameter names to leave dense (repeatable).")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one line of JSON at the end.")]
Device = Annotated[
    str | None,
    typer.Option(help="Device such as cpu or cuda; by default a GPU if there is one."),
]
Overwrite = Annotated[
    bool,
    typer.Option(
        "--overwrite",
        help="Replace files in OUT that chita did not write, and give up an unfinished run there.",
    ),
]
OverwriteFile = Annotated[bool, typer.Option("--overwrite", help="Replace the file if it exists.")]
Context = Annotated[
    int | None,
    typer.Option(
        help=f"Tokens in a sequence of a text: by default {CONTEXT}, or the most that the model "
        "takes."
    ),
]
SequenceCount = Annotated[
    int | None,
    typer.Option(
        "--sequences",
        min=1,
        help=f"Sequences of a text to calibrate on, at most: by default {SEQUENCES}.",
    ),
]
Seed = Annotated[int, typer.Option(min=0, help="Random seed.")]
ValSplit = Annotated[
    float | None,
    typer.Option(
        help="Share of the images to test on, for an image folder without train/ and val/."
    ),
]
