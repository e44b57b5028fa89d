"""Values of options as the command line writes them."""

from __future__ import annotations

import pytest

from chita import ChitaError
from chita.pruning.options.text import read_ridge, read_shares, read_sparsity_text


def test_shares_keep_their_order_and_the_last_equals_sign_divides() -> None:
    shares = read_shares("--at-most", ["b=0.5", "a=b=1e-1", "[!c]=0"])
    assert list(shares.items()) == [("b", 0.5), ("a=b", 0.1), ("[!c]", 0.0)]


@pytest.mark.parametrize("given", ["fc1", "0.5", "=0.5", "fc1=", "fc1=half"])
def test_a_wrong_share_is_refused(given: str) -> None:
    with pytest.raises(ChitaError, match=f"--layer .*GLOB=SPARSITY.*'{given}'"):
        read_shares("--layer", [given])


def test_numbers_and_words() -> None:
    assert (read_ridge("--ridge", "auto"), read_ridge("--ridge", "1e-3")) == ("auto", 1e-3)
    with pytest.raises(ChitaError, match=r"--ridge .*'small'"):
        read_ridge("--ridge", "small")
    assert read_sparsity_text("--sparsity", "0.9") == 0.9
    assert read_sparsity_text("--sparsity", "2:4") == "2:4"
    with pytest.raises(ChitaError, match=r"--sparsity .*'half'"):
        read_sparsity_text("--sparsity", "half")
    with pytest.raises(ChitaError, match=r"--sparsity .*'4:2'"):
        read_sparsity_text("--sparsity", "4:2")
