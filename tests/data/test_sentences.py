"""Sentences of a text in the format of WikiText."""

from __future__ import annotations

from pathlib import Path

import pytest

from chita.data.sentences import read_sentences
from chita.errors import ChitaError
from tests.support.messages import naming

TEXT = """\

 = Robert Boulter =
 Robert Boulter is an English film actor . He had a guest @-@ starring role in 2000 . " It earned
 1 @,@ 000 pounds , or 2 @.@ 5 times the usual . "

 = = Career of an actor with a long title . = =
 He met J. smith and the others in the harbour . He left . Was the ship at sea ? ( Nobody saw it
 on the water again ) .
 Robert Boulter is an English film actor .
 The <unk> of the harbour was an old man .
"""


def text(folder: Path, content: str) -> Path:
    path = folder / "text.raw"
    path.write_text(content, encoding="utf-8")
    return path


def test_paragraphs_become_distinct_sentences_without_headings(tmp_path: Path) -> None:
    content = TEXT.replace("earned\n", "earned").replace("saw it\n", "saw it")
    assert read_sentences(text(tmp_path, content)) == [
        "Robert Boulter is an English film actor .",
        "He had a guest-starring role in 2000 .",
        '" It earned 1,000 pounds , or 2.5 times the usual . "',
        "He met J. smith and the others in the harbour .",
        "Was the ship at sea ?",
        "( Nobody saw it on the water again ) .",
    ]


def test_a_text_without_sentences_is_an_error(tmp_path: Path) -> None:
    path = text(tmp_path, " = A heading of seven words in all = \n Too short .\n")
    with pytest.raises(ChitaError, match=naming(str(path), "6 words")):
        read_sentences(path)
