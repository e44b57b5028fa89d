"""Text files as sequences of tokens."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from chita.data.text import Tokens, choose_sequences, read_tokens
from chita.errors import ChitaError
from tests.support.messages import naming


def as_bytes(text: str) -> list[int]:
    return list(text.encode())


@given(length=st.integers(2, 200), context=st.integers(2, 50))
@settings(max_examples=50, deadline=None)
def test_sequences_follow_each_other_without_overlap(length: int, context: int) -> None:
    tokens = Tokens("text", torch.arange(length))
    if length < context:
        with pytest.raises(ChitaError, match=naming("text", length, context)):
            tokens.sequences(context)
        return
    found = tokens.sequences(context)
    assert found.shape == (length // context, context)
    assert found.flatten().tolist() == list(range(length // context * context))


def test_the_first_tokens_are_the_first() -> None:
    tokens = Tokens("text", torch.arange(10))
    assert tokens.first(4).ids.tolist() == [0, 1, 2, 3]
    assert len(tokens.first(None).ids) == 10


def test_a_file_becomes_tokens_with_the_line_ends_of_unix(tmp_path: Path) -> None:
    file = tmp_path / "text.txt"
    file.write_bytes("grün\r\nblau\n".encode())
    assert read_tokens(file, as_bytes).ids.tolist() == list("grün\nblau\n".encode())


def test_what_is_not_utf8_is_named_with_its_place(tmp_path: Path) -> None:
    file = tmp_path / "latin.txt"
    file.write_bytes("grün".encode("latin-1"))
    with pytest.raises(ChitaError, match=naming("latin.txt", "UTF-8", 2)):
        read_tokens(file, as_bytes)
    with pytest.raises(ChitaError, match=naming("absent.txt")):
        read_tokens(tmp_path / "absent.txt", as_bytes)
    with pytest.raises(ChitaError, match=naming(tmp_path.name)):
        read_tokens(tmp_path, as_bytes)


def test_some_sequences_are_drawn_without_repetition() -> None:
    sequences = torch.arange(60).view(20, 3)
    found = choose_sequences(sequences, 8, seed=1)
    starts = found[:, 0].tolist()
    assert len(set(starts)) == 8 and starts != sorted(starts)
    assert torch.equal(found, choose_sequences(sequences, 8, seed=1))
    assert not torch.equal(found, choose_sequences(sequences, 8, seed=2))
    assert len(choose_sequences(sequences, 100, seed=0)) == 20
