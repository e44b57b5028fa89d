"""The command `chita perplexity`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from time import perf_counter
from typing import Annotated

import typer

from chita.cli.launch import open_with_data, pick_device
from chita.cli.set_option import Arguments, read_arguments
from chita.cli.shared_options import AsJson, Context, Device, SourceNetwork
from chita.cli.threads import Threads
from chita.data.text import TextSize
from chita.errors import ChitaError
from chita.files.run_folder import CONFIG_FILE
from chita.model.language import measure_perplexity
from chita.references.huggingface_model import PREFIX, is_huggingface_folder
from chita.report.console import show, show_json
from chita.report.progress import step_bar
from chita.zoo.find_trained import find_source
from chita.zoo.network_data import TEXT


def perplexity_command(
    source: Annotated[
        str,
        typer.Argument(
            help="A folder of Hugging Face, the run folder of a language model, or a checkpoint "
            "with --network."
        ),
    ],
    text: Annotated[Path, typer.Option(help="Text to measure on, in UTF-8.", metavar="FILE")],
    context: Context = None,
    tokens: Annotated[
        int | None, typer.Option(min=2, help="Measure on the first tokens only, at most this many.")
    ] = None,
    network: SourceNetwork = None,
    arguments: Arguments = None,
    device: Device = None,
    threads: Threads = None,
    as_json: AsJson = False,
) -> None:
    """Measure how well a language model predicts a text: exp of the mean loss of a token.

    The text is cut into sequences of --context tokens without overlap. The first token of each is
    not predicted, and the rest of the text that does not fill a sequence is left out.
    """
    place = pick_device(device)
    # The folder of a run may have the files of Hugging Face, and then needs no other network.
    run = (Path(source) / CONFIG_FILE).exists()
    whole = network is None and (
        is_huggingface_folder(source) or (Path(source).is_dir() and not run)
    )
    known, checkpoint = find_source(
        f"{PREFIX}{source}" if whole else source, network, read_arguments(arguments)
    )
    if known.tokenizer is None:
        raise ChitaError(
            f"{source} has no tokenizer for --text {text}: give a folder of Hugging Face, or a "
            f"checkpoint with --network {PREFIX}FOLDER"
        )
    name = f"{TEXT}{text}"
    size = TextSize(context, tokens=tokens)
    trained = open_with_data(
        known, checkpoint, name, test_name=name, val_split=None, seed=0, place=place, text=size
    )
    began = perf_counter()
    with step_bar(f"perplexity of {source}") as progress:
        found = measure_perplexity(trained.model, trained.test, progress)
    seconds = perf_counter() - began
    show(
        f"perplexity {found.perplexity:.4g}: {found.sequences} sequences of "
        f"{found.tokens // found.sequences + 1} tokens in {seconds:.1f} s"
    )
    if as_json:
        show_json({"source": source, "text": str(text), **asdict(found), "seconds": seconds})
