from pathlib import Path

import pytest

from chita.errors import ChitaError
from chita.gradual.registry import METHODS, REFERENCES
from chita.model.weights import Weights
from tests.gradual.small import same, small_network, train
from tests.support.messages import naming


def test_dense_training_is_that_of_a_mask_which_keeps_everything() -> None:
    """DNW with no weight pruned takes the same steps from the same fresh weights."""
    dense, other = small_network(0), small_network(1)
    history = train(dense, method="dense", sparsity=0.0)
    train(other, method="dnw", sparsity=0.0)
    assert same(dense, other)
    assert history.nonzeros == history.weights == Weights(dense).size
    assert not any(row.pruned for row in history.rows)
    assert history.rows[0].learning_rate == pytest.approx(0.05)


def test_it_goes_on_to_the_same_bits(tmp_path: Path) -> None:
    def interrupt(done: int, _: int) -> None:
        if done == 6:
            raise KeyboardInterrupt

    whole, parts = small_network(), small_network()
    train(whole, method="dense", sparsity=0.0)
    with pytest.raises(KeyboardInterrupt):
        train(parts, method="dense", sparsity=0.0, out=tmp_path, progress=interrupt)
    parts = small_network()
    train(parts, method="dense", sparsity=0.0, out=tmp_path, resume=True)
    assert same(whole, parts)


def test_a_sparsity_is_refused() -> None:
    with pytest.raises(ChitaError, match=naming("sparsity", "dense", 0.8)):
        train(small_network(), method="dense", sparsity=0.8)


def test_a_reference_is_no_method_to_compare() -> None:
    assert not METHODS.keys() & REFERENCES.keys()
    assert all(method.from_scratch for method in REFERENCES.values())
