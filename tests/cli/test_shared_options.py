import pytest

from chita.cli.shared_options import parse_allocation, parse_shares
from chita.errors import ChitaError


def test_a_rule_or_layers_or_neither() -> None:
    assert parse_allocation(None, None) == parse_allocation(None, []) == "global"
    assert parse_allocation("erk", None) == "erk"
    assert parse_allocation(None, ["a*=0.5"]) == {"a*": 0.5}
    with pytest.raises(ChitaError, match="--allocation erk or --layer, not both"):
        parse_allocation("erk", ["a*=0.5"])


def test_shares_keep_their_order_and_the_last_equals_sign_divides() -> None:
    shares = parse_shares("--at-most", ["b=0.5", "a=b=1e-1", "[!c]=0"])
    assert shares == {"b": 0.5, "a=b": 0.1, "[!c]": 0.0}
    assert list(shares or ()) == ["b", "a=b", "[!c]"]
    assert parse_shares("--at-most", None) is None


@pytest.mark.parametrize("given", ["fc1", "0.5", "=0.5", "fc1=", "fc1=half"])
def test_what_is_no_share_is_refused(given: str) -> None:
    with pytest.raises(ChitaError, match=f"--layer takes GLOB=SPARSITY.*got '{given}'"):
        parse_shares("--layer", [given])
