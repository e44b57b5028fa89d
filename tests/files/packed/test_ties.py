import torch
from torch import nn

from chita.files.packed.write import find_ties


def test_tied_weights_have_one_first_name() -> None:
    model = nn.ModuleDict({name: nn.Linear(3, 3) for name in "abc"})
    model["c"].weight = model["a"].weight
    assert find_ties(model.state_dict()) == {"c.weight": "a.weight"}


def test_other_views_of_the_same_memory_and_empty_tensors_are_not_tied() -> None:
    whole = torch.arange(9.0).reshape(3, 3)
    views = {"whole": whole, "flat": whole.reshape(-1), "turned": whole.T, "row": whole[0]}
    assert find_ties(views) == {}
    assert find_ties({"a": torch.empty(0), "b": torch.empty(0)}) == {}
