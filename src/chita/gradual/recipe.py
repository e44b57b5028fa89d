"""The recipe of a training with pruning steps, read from YAML."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from chita.data.dataset import Augmentation
from chita.data.preprocessing import RandomResizedCrop, pad_crop_flip
from chita.errors import ChitaError
from chita.files.atomic import as_path
from chita.files.yaml_file import read_yaml
from chita.gradual.schedules import PruningSchedule, polynomial

AUGMENTATIONS: dict[str, Augmentation] = {
    "pad-crop-flip": pad_crop_flip,
    "random-resized-crop": RandomResizedCrop(),
}
_SHIPPED = Path(__file__).parent / "recipes"


@dataclass(frozen=True)
class GradualRecipe:
    """SGD with a cosine learning rate that restarts at each pruning step.

    Args:
        epochs: the number of epochs.
        batch_size: the images in a step, over all ranks.
        learning_rate: the rate at the start and after each pruning step.
        final_learning_rate: the rate before the next pruning step and at the end.
        momentum: the momentum of SGD.
        weight_decay: the weight decay of SGD.
        label_smoothing: the share of each target that is spread over all classes.
        distill: minimise the divergence from the outputs of the trained model, without labels,
            instead of the cross-entropy.
        augment: "pad-crop-flip", "random-resized-crop" or None.
        first_sparsity: the sparsity of the first pruning step, before the first epoch.
        pruning_steps: the number of pruning steps.
        pruning_interval: the time between two pruning steps, as a share of the epochs.
        methods: settings of methods by name, such as samples and block_size.
    """

    epochs: int
    batch_size: int
    learning_rate: float = 0.1
    final_learning_rate: float = 1e-5
    momentum: float = 0.9
    weight_decay: float = 1e-4
    label_smoothing: float = 0.0
    distill: bool = False
    augment: str | None = None
    first_sparsity: float = 0.5
    pruning_steps: int = 7
    pruning_interval: float = 0.12
    methods: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, (holds, what) in _RULES.items():
            if not holds(getattr(self, name)):
                raise ChitaError(f"{name} must be {what}, got {getattr(self, name)!r}")
        if self.final_learning_rate > self.learning_rate:
            raise ChitaError(
                f"final_learning_rate must be at most learning_rate, {self.learning_rate}, got "
                f"{self.final_learning_rate}"
            )
        if self.epochs <= (self.pruning_steps - 1) * self._every:
            raise ChitaError(
                f"epochs={self.epochs} are too few for pruning_steps={self.pruning_steps} with "
                f"{self._every} between them: give at least "
                f"{(self.pruning_steps - 1) * self._every + 1}, or fewer pruning_steps"
            )

    @property
    def _every(self) -> int:
        return max(1, round(self.pruning_interval * self.epochs))

    def schedule(self, sparsity: float) -> PruningSchedule:
        """Return the pruning steps that lead to a sparsity."""
        return polynomial(
            sparsity, first=self.first_sparsity, steps=self.pruning_steps, every=self._every
        )

    def augmentation(self) -> Augmentation | None:
        """Return the augmentation of the training images."""
        return None if self.augment is None else AUGMENTATIONS[self.augment]


def read_recipe(path: str | Path) -> GradualRecipe:
    """Read a recipe from a YAML file with the arguments of `GradualRecipe`.

    They may be under the key "recipe", as in the config.yaml of a run.
    """
    try:
        content = read_yaml(as_path(path))
    except ChitaError as error:
        raise ChitaError(f"recipe: {error}") from error
    if isinstance(content, dict) and isinstance(content.get("recipe"), dict):
        content = content["recipe"]
    known = [each.name for each in fields(GradualRecipe)]
    if not isinstance(content, dict):
        raise ChitaError(f"recipe {path} must be a mapping with keys among {', '.join(known)}")
    if unknown := [str(name) for name in content if name not in known]:
        raise ChitaError(
            f"recipe {path} has unknown keys: {', '.join(unknown)}; use {', '.join(known)}"
        )
    if missing := [name for name in ("epochs", "batch_size") if name not in content]:
        raise ChitaError(f"recipe {path} lacks {' and '.join(missing)}")
    try:
        return GradualRecipe(**content)
    except ChitaError as error:
        raise ChitaError(f"recipe {path}: {error}") from error


def shipped_recipe(network: str) -> GradualRecipe:
    """Return the recipe that ships with chita for a network of the zoo."""
    path = _SHIPPED / f"{network}.yaml"
    if not path.exists():
        known = ", ".join(sorted(each.stem for each in _SHIPPED.glob("*.yaml")))
        raise ChitaError(f"chita has no recipe for {network}, only for {known}: pass --recipe FILE")
    return read_recipe(path)


Rule = tuple[Callable[[Any], bool], str]


def _number(holds: Callable[[float], bool], what: str) -> Rule:
    def is_one(value: Any) -> bool:
        plain = isinstance(value, (int, float)) and not isinstance(value, bool)
        return plain and math.isfinite(value) and holds(value)

    return is_one, f"{what} (as in 0.001: YAML takes 1e-3 for text)"


def _count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _are_settings(value: Any) -> bool:
    return isinstance(value, Mapping) and all(
        isinstance(name, str) and isinstance(settings, Mapping) for name, settings in value.items()
    )


_COUNT: Rule = (_count, "an integer of at least 1")
_SHARE = _number(lambda value: 0 <= value < 1, "a number in [0, 1)")
_POSITIVE = _number(lambda value: value > 0, "a positive number")
_NOT_NEGATIVE = _number(lambda value: value >= 0, "a number of at least 0")
_RULES: dict[str, Rule] = {
    "epochs": _COUNT,
    "batch_size": _COUNT,
    "learning_rate": _POSITIVE,
    "final_learning_rate": _NOT_NEGATIVE,
    "momentum": _SHARE,
    "weight_decay": _NOT_NEGATIVE,
    "label_smoothing": _SHARE,
    "distill": (lambda value: isinstance(value, bool), "true or false"),
    "augment": (
        lambda value: value is None or value in AUGMENTATIONS,
        f"one of {', '.join(AUGMENTATIONS)}, or null",
    ),
    "first_sparsity": _SHARE,
    "pruning_steps": _COUNT,
    "pruning_interval": _SHARE,
    "methods": (_are_settings, "a mapping of method names to settings"),
}
