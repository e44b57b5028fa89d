"""Seeds depend on the whole key, and drawing leaves the global generator alone."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from chita.model.seeds import drawing, generator_of, seed_of

KEYS = st.lists(st.integers(-5, 2**64 - 1), min_size=1, max_size=4)
CPU = torch.device("cpu")


@given(KEYS, KEYS)
def test_a_seed_depends_on_every_number_and_their_order(one: list[int], other: list[int]) -> None:
    assert (seed_of(*one) == seed_of(*other)) == (one == other)
    assert 0 <= seed_of(*one) < 2**63


def test_neighbouring_keys_are_not_joined_into_one_number() -> None:
    assert seed_of(1, 12) != seed_of(11, 2)
    assert seed_of(1) != seed_of(1, 0)


def test_a_generator_repeats_what_it_drew() -> None:
    one, again, other = (torch.rand(5, generator=generator_of(3, n)) for n in (1, 1, 2))
    assert torch.equal(one, again)
    assert not torch.equal(one, other)


def test_drawing_seeds_layers_and_restores_the_generator() -> None:
    before = torch.get_rng_state()
    found = []
    for seed in (1, 1, 2):
        with drawing(seed, CPU):
            found.append(torch.nn.functional.dropout(torch.ones(50)))
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])
    with pytest.raises(KeyError), drawing(1, CPU):
        torch.rand(3)
        raise KeyError
    assert torch.equal(torch.get_rng_state(), before)
