from pathlib import Path
from typing import Any

import pytest
import yaml

from chita import zoo
from chita.errors import ChitaError
from chita.gradual.recipe import GradualRecipe, read_recipe, shipped_recipe
from chita.gradual.schedules import cosine_restarts
from chita.zoo import NETWORKS
from tests.support.messages import naming

SHIPPED = ("mlpnet", "resnet20", "mobilenetv1", "resnet50")


@pytest.mark.parametrize("network", SHIPPED)
def test_shipped_recipes_augment_and_decay_as_the_network_was_trained(network: str) -> None:
    recipe, trained = shipped_recipe(network), zoo.get(network).recipe
    assert recipe.augmentation() == trained.augment
    assert recipe.weight_decay == trained.weight_decay
    assert recipe.batch_size == trained.batch_size


@pytest.mark.parametrize(("network", "block_size"), [("mobilenetv1", 2000), ("resnet50", 500)])
def test_the_papers_settings(network: str, block_size: int) -> None:
    recipe = shipped_recipe(network)
    schedule = recipe.schedule(0.89)
    assert recipe.epochs == 100
    assert schedule.epochs == (0, 12, 24, 36, 48, 60, 72)
    assert (schedule.sparsities[0], schedule.sparsities[-1]) == (0.5, 0.89)
    assert recipe.methods["chita-bso"]["block_size"] == block_size
    rates = {
        "highest": recipe.learning_rate,
        "lowest": recipe.final_learning_rate,
    }
    assert cosine_restarts(12, schedule, 100, **rates) == pytest.approx(0.1)
    assert cosine_restarts(6, schedule, 100, **rates) == pytest.approx((0.1 + 1e-5) / 2)


@pytest.mark.parametrize(
    ("epochs", "due"),
    [(7, (0, 1, 2, 3, 4, 5, 6)), (20, (0, 2, 4, 6, 8, 10, 12)), (50, (0, 6, 12, 18, 24, 30, 36))],
)
def test_pruning_steps_scale_with_the_epochs(epochs: int, due: tuple[int, ...]) -> None:
    assert GradualRecipe(epochs=epochs, batch_size=128).schedule(0.9).epochs == due


def test_a_network_without_a_recipe() -> None:
    assert "mobilenetv1-folded" in NETWORKS
    with pytest.raises(
        ChitaError,
        match=naming("mobilenetv1-folded", "mlpnet, mobilenetv1, resnet20, resnet50", "--recipe"),
    ):
        shipped_recipe("mobilenetv1-folded")


def written(folder: Path, content: Any) -> Path:
    path = folder / "recipe.yaml"
    path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    return path


def test_what_is_read_is_what_was_written(tmp_path: Path) -> None:
    content = {
        "epochs": 12,
        "batch_size": 64,
        "learning_rate": 0.2,
        "label_smoothing": 0.1,
        "distill": True,
        "augment": "pad-crop-flip",
        "methods": {"chita-bso": {"samples": 10}},
    }
    recipe = read_recipe(written(tmp_path, content))
    assert recipe == GradualRecipe(**content)
    assert recipe.momentum == 0.9


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"lr": 0.1}, naming("lr", "epochs, batch_size, learning_rate")),
        ({"learning_rate": "1e-1"}, naming("learning_rate", "1e-1", "1e-3")),
        ({"learning_rate": 0}, naming("learning_rate", 0)),
        ({"epochs": 0}, naming("epochs", 0)),
        ({"epochs": True}, naming("epochs", True)),
        ({"batch_size": 2.5}, naming("batch_size", 2.5)),
        ({"momentum": 1.0}, naming("momentum", 1.0)),
        ({"weight_decay": float("nan")}, naming("weight_decay", "nan")),
        ({"augment": "mixup"}, naming("augment", "pad-crop-flip", "random-resized-crop", "mixup")),
        ({"distill": 1}, naming("distill", 1)),
        ({"methods": {"chita-bso": 5}}, naming("methods", {"chita-bso": 5})),
        ({"final_learning_rate": 1.0}, naming("final_learning_rate", "learning_rate", 0.1, 1.0)),
        ({"epochs": 6}, naming("epochs=6", "pruning_steps=7", 7)),
    ],
)
def test_a_wrong_value_names_the_file_and_what_would_work(
    changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    path = written(tmp_path, {"epochs": 20, "batch_size": 64, **changes})
    with pytest.raises(ChitaError, match=message) as caught:
        read_recipe(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("epochs: [", naming("recipe.yaml", "line 1")),
        ("- epochs", naming("recipe.yaml", "epochs", "batch_size")),
        ("", naming("recipe.yaml", "epochs", "batch_size")),
        ("epochs: 8", naming("recipe.yaml", "batch_size")),
    ],
)
def test_what_is_no_recipe(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ChitaError, match=message):
        read_recipe(written(tmp_path, text))
    with pytest.raises(ChitaError, match=naming("recipe", "none.yaml")):
        read_recipe(tmp_path / "none.yaml")
