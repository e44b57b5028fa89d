import pytest

from chita.gradual.schedules import one_shot, polynomial
from chita.gradual.sparsifier import TrainingPlan


def test_the_cubic_runs_from_the_first_pruning_step_to_the_last() -> None:
    plan = TrainingPlan(0.8, 100, 10, polynomial(0.8, begin=4), seed=0)
    assert (plan.steps, plan.first_step, plan.last_step) == (1000, 40, 760)
    assert plan.sparsity_at(0) == plan.sparsity_at(40) == 0
    assert plan.sparsity_at(400) == pytest.approx(0.8 * (1 - 0.5**3))
    assert plan.sparsity_at(760) == plan.sparsity_at(1000) == 0.8


@pytest.mark.parametrize(("at", "last"), [(0, 1), (3, 30)])
def test_a_single_pruning_step_is_a_jump(at: int, last: int) -> None:
    plan = TrainingPlan(0.8, 10, 10, one_shot(0.8, at=at), seed=0)
    assert plan.sparsity_at(last - 1) == 0
    assert plan.sparsity_at(last) == 0.8
