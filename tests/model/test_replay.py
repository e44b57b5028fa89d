"""Sections of a forward pass, run one by one, against a plain pass."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from chita.errors import ChitaError
from chita.model.hooks import returning
from chita.model.replay import Replay, StopPassError
from chita.model.samples.batch import Batch
from tests.support.pruning import numbers, seeded


class Net(nn.Module):
    """Blocks in a list, with glue around them that changes its input in place."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 6)
        self.blocks = nn.ModuleList(nn.Linear(6, 6) for _ in range(3))
        self.called: list[int] = []

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        for number, block in enumerate(self.blocks):
            self.called.append(number)
            x = block(x).relu_()
        return x.sum(1)


@torch.no_grad()
def test_sections_give_the_output_of_a_plain_pass() -> None:
    model = seeded(Net).double()
    batch = Batch(((numbers(5, 4),), torch.zeros(5)), 5)
    assert isinstance(model.blocks, nn.ModuleList)
    replay = Replay(model, tuple(model.blocks))
    assert replay.sections == 4
    state = None
    for section in range(3):
        again = replay.run(section, batch)  # with all earlier sections
        state = replay.run(section, batch, state)
        assert torch.equal(again, state)
        kept = state.clone()
        replay.run(section + 1, batch, state)
        assert torch.equal(state, kept)  # the glue changes a copy
    assert torch.equal(replay.run(3, batch, state), batch.outputs(model))


@torch.no_grad()
def test_a_hook_may_stop_a_pass() -> None:
    model = seeded(Net).double()

    def stop(*call: object) -> None:
        raise StopPassError("early")

    assert isinstance(model.blocks, nn.ModuleList)
    handle = model.blocks[1].register_forward_hook(stop)
    batch = Batch(((numbers(5, 4),), torch.zeros(5)), 5)
    assert Replay(model, tuple(model.blocks)).run(2, batch) == "early"
    handle.remove()
    with pytest.raises(ChitaError, match=r"\(5, 3\)"):
        Replay(model).run(0, Batch(((numbers(5, 3),), torch.zeros(5)), 5))


def test_replaced_modules_are_restored() -> None:
    module, other = nn.Linear(2, 2), nn.Linear(2, 2)
    own = other.forward = lambda x: x  # as other libraries do
    with pytest.raises(KeyError), returning([module, other], (torch.ones(1), None)):
        assert module(1)[0] == 1 and other(keyword=2)[1] is None
        raise KeyError
    assert "forward" not in vars(module) and other.forward is own
