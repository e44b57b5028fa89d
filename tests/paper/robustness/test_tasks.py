import torch

from chita.paper.robustness.tasks import (
    DIGITS,
    LENGTH,
    MARKER,
    SIZES,
    digits,
    in_batches,
    sequences,
    shuffled,
    signals,
)


def test_the_label_of_a_sequence_is_the_larger_digit_after_a_marker() -> None:
    tokens, labels = sequences().test
    assert tokens.shape == (SIZES[1], LENGTH)
    for row, label in zip(tokens[:200].tolist(), labels[:200].tolist(), strict=True):
        places = [place for place, token in enumerate(row) if token == MARKER]
        assert len(places) == 2
        assert label == max(row[place + 1] for place in places) < DIGITS
    assert set(labels.tolist()) == set(range(DIGITS))


def test_signals_and_digits_have_their_shapes_and_all_classes() -> None:
    waves, forms = signals().train
    assert waves.shape == (SIZES[0], 1, 64)
    assert forms.unique().tolist() == list(range(6))
    images, labels = digits().train
    assert images.shape == (SIZES[0], 1, 28, 28)
    assert labels.unique().tolist() == list(range(10))
    assert abs(float(images.mean())) < 0.02
    assert len(digits().test[1]) == SIZES[1]


def test_generated_samples_are_the_same_each_time_and_the_test_set_is_new() -> None:
    first = signals()
    signals.cache_clear()
    again = signals()
    assert torch.equal(first.train[0], again.train[0])
    assert not torch.equal(first.train[0][:100], first.test[0][:100])


def test_batches_hold_every_sample_once_in_the_order_drawn() -> None:
    samples = (torch.arange(25), torch.arange(25) + 100)
    drawn = shuffled(samples, torch.Generator().manual_seed(0))
    batches = in_batches(drawn, 10, torch.device("cpu"))
    assert [len(inputs) for inputs, _ in batches] == [10, 10, 5]
    seen = torch.cat([inputs for inputs, _ in batches])
    assert not torch.equal(seen, samples[0])
    assert torch.equal(seen.sort().values, samples[0])
    assert all(torch.equal(labels, inputs + 100) for inputs, labels in batches)
