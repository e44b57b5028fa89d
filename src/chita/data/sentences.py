"""The sentences of a text in the format of WikiText, to calibrate and to measure encoders on."""

from __future__ import annotations

import re
from pathlib import Path

from chita.data.text import read_text
from chita.errors import ChitaError

LEAST_WORDS = 6  # of a sentence; shorter ones are often initials or parts of a list
UNKNOWN = "<unk>"  # stands for a rare word in some versions of WikiText
_HEADING = "="  # the first character of a heading
_JOINED = re.compile(r" @([-,.])@ ")  # in a word or a number, such as 1 @,@ 000
_END = re.compile(r"""(?<=[.?!]) (?=["'(]? ?[A-Z])""")


def read_sentences(path: Path) -> list[str]:
    """Return the distinct sentences of a text, in order, without headings and unknown words.

    A sentence ends at a full stop, a question mark or an exclamation mark that a capital letter
    follows. One of fewer than LEAST_WORDS words is left out.

    Raises:
        ChitaError: the file cannot be read, or contains no sentence.
    """
    lines = (line.strip() for line in read_text(path).splitlines())
    texts = (_JOINED.sub(r"\1", line) for line in lines if not line.startswith(_HEADING))
    sentences = (sentence for text in texts for sentence in _END.split(text))
    found = [each for each in sentences if UNKNOWN not in each and _words(each) >= LEAST_WORDS]
    if not found:
        raise ChitaError(f"{path} contains no sentence of at least {LEAST_WORDS} words")
    return list(dict.fromkeys(found))


def _words(sentence: str) -> int:
    return len(sentence.split())
