import pytest
import torch

from chita.files.describe import find_pattern
from tests.files.packed.states import sparse


def n_of_m(rows: int, columns: int, n: int, m: int) -> torch.Tensor:
    """(rows, columns), n kept at random places of every m in a row."""
    generator = torch.Generator().manual_seed(0)
    weights = torch.randn(rows * columns // m, m, generator=generator)
    return torch.where(weights.argsort(dim=1).argsort(dim=1) < n, weights, 0.0).reshape(
        rows, columns
    )


@pytest.mark.parametrize(("n", "m"), [(1, 2), (2, 4), (1, 4), (4, 8), (3, 5), (1, 32)])
def test_groups_along_the_input(n: int, m: int) -> None:
    weights = n_of_m(16, 160, n, m)
    assert find_pattern(weights) == f"{n}:{m}"
    assert find_pattern(weights.T) == f"{n}:{m}"  # as transformers' Conv1D holds it


def test_a_convolution_has_its_channels_innermost() -> None:
    weights = n_of_m(8, 9 * 16, 2, 4)
    assert find_pattern(weights.reshape(8, 3, 3, 16).permute(0, 3, 1, 2)) == "2:4"
    assert find_pattern(weights.reshape(8, 16, 3, 3)) == "unstructured"


@pytest.mark.parametrize("density", [0.02, 0.25, 0.5, 0.75, 0.99])
def test_random_zeros_have_no_pattern(density: float) -> None:
    assert find_pattern(sparse((64, 96), density)) == "unstructured"


def test_one_group_too_full_is_no_pattern() -> None:
    weights = n_of_m(64, 64, 2, 4)
    weights[5, :4] = 1.0
    assert find_pattern(weights) == "unstructured"


@pytest.mark.parametrize("dead", [[0, 1, 2, 3], [1, 3, 5, 7], [2, 3, 6, 7]])
def test_dead_outputs_are_no_groups(dead: list[int]) -> None:
    weights = torch.ones(8, 15)
    weights[dead] = 0.0
    assert find_pattern(weights) == "unstructured"
    weights[4, 7] = 0.0  # by chance
    assert find_pattern(weights) == "unstructured"


def test_dead_inputs_do_not_hide_groups() -> None:
    weights = n_of_m(64, 160, 2, 4)
    weights[:, 17] = 0.0
    assert find_pattern(weights) == find_pattern(weights.T) == "2:4"


def test_without_zeros() -> None:
    for tensor in (torch.ones(4, 4), torch.empty(0), torch.tensor(3)):
        assert find_pattern(tensor) == "dense"
    assert find_pattern(torch.zeros(4, 4)) == "unstructured"
    assert find_pattern(torch.zeros(0, 4)) == "dense"
