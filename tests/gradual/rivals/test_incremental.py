import pytest
import torch

from chita.gradual.rivals.incremental import Incremental
from chita.gradual.schedules import one_shot
from chita.gradual.sparsifier import TrainingPlan
from tests.gradual.training import SIZES, accuracy, run, sgd, small_model, small_plan, zeros


def test_sparsity_follows_the_cubic_and_all_layers_are_alike() -> None:
    model, plan = small_model(), small_plan(0.8)
    optimizer = sgd(model)
    pruner = Incremental(model, optimizer, plan, every=5)
    for epoch in range(plan.epochs):
        run(model, optimizer, pruner, plan, begin=epoch, end=epoch + 1)
        share = min(10 * (epoch + 1) / 60, 1)  # the last pruning step is before epoch 6
        due = 0.8 * (1 - (1 - share) ** 3)
        for count, size in zip(zeros(model), SIZES, strict=True):
            assert count / size == pytest.approx(due, abs=1.5 / size)
    pruner.finalize()
    assert sum(SIZES) - sum(zeros(model)) == int(0.2 * sum(SIZES))
    assert accuracy(model) > 0.9


def test_the_smallest_weights_go_and_stay() -> None:
    model, plan = small_model(), small_plan(0.5)
    optimizer = sgd(model, rate=0.01)
    pruner = Incremental(model, optimizer, plan, every=10)
    first = model[0].weight
    gone = torch.zeros_like(first, dtype=torch.bool)
    for epoch in range(plan.epochs):
        run(model, optimizer, pruner, plan, begin=epoch, end=epoch + 1)
        assert (first[gone] == 0).all()
        gone = first == 0
    assert gone.sum() == 128


def test_a_single_pruning_step_and_a_training_cut_short() -> None:
    model = small_model()
    plan = TrainingPlan(0.75, 4, 10, one_shot(0.75, at=2), seed=0)
    optimizer = sgd(model)
    pruner = Incremental(model, optimizer, plan)
    run(model, optimizer, pruner, plan, end=1)
    assert sum(zeros(model)) == 0
    run(model, optimizer, pruner, plan, begin=1, end=3)
    assert zeros(model) == [192, 384, 48]
    short = small_model()
    optimizer = sgd(short)
    pruner = Incremental(short, optimizer, plan)
    run(short, optimizer, pruner, plan, end=1)
    pruner.finalize()
    assert zeros(short) == [192, 384, 48]
