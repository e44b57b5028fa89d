"""Models of timm, by name: timm:NAME."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from torch import nn

from chita.data.preprocessing import Preprocessing
from chita.errors import ChitaError, closest, is_count, require
from chita.references.call import call_given
from chita.references.given_network import GivenNetwork

PREFIX = "timm:"


def timm_network(text: str, arguments: Mapping[str, Any]) -> GivenNetwork:
    """Return the model of timm that a text names.

    Nothing is downloaded unless `arguments` has pretrained=True and no checkpoint is given.

    Args:
        text: timm:NAME.
        arguments: the arguments of `timm.create_model`, such as num_classes=10.
    """
    timm = _import_timm()
    name = text.removeprefix(PREFIX)
    if not timm.is_model(name):
        near = closest(name, timm.list_models())
        hint = f"did you mean {near!r}?" if near else "timm.list_models() returns all names"
        raise ChitaError(f"timm has no model {name!r}; {hint}")
    if "model_name" in arguments:
        raise ChitaError(f"--set model_name is part of {text}: leave it out")
    others = {key: value for key, value in arguments.items() if key != "pretrained"}
    channels = _count(others, "in_chans", 3)

    def build(pretrained: bool = False) -> Callable[[], nn.Module]:
        given = {"model_name": name, "pretrained": pretrained, **others}
        return lambda: call_given(text, timm.create_model, given)

    preprocessing = _preprocessing(timm.get_pretrained_cfg(name), others)
    return GivenNetwork(
        build=build(),
        build_trained=build(pretrained=True) if arguments.get("pretrained") else None,
        preprocessing=preprocessing,
        channels=channels,
    )


def _preprocessing(published: Any, arguments: Mapping[str, Any]) -> Preprocessing:
    """Return the preprocessing that the published weights were trained with.

    Args:
        published: the pretrained_cfg of the model; None if timm has none.
        arguments: the arguments of the model; img_size takes precedence.
    """
    size = _count(arguments, "img_size", 224 if published is None else published.input_size[-1])
    if published is None:
        return Preprocessing(size=size, resize=math.floor(size * 256 / 224))
    resize = math.floor(size / published.crop_pct)
    return Preprocessing(size, resize, tuple(published.mean), tuple(published.std))


def _count(arguments: Mapping[str, Any], name: str, default: int) -> int:
    value = arguments.get(name, default)
    require(f"--set {name}", value, is_count, "an integer of at least 1")
    return int(value)


def _import_timm() -> Any:
    try:
        import timm
    except ModuleNotFoundError as error:
        if error.name != "timm":
            raise ChitaError(f"timm cannot be imported: {error}") from error
        raise ChitaError(
            "timm is not installed, but a network is named timm:NAME; pip install 'chita[timm]'"
        ) from None
    except (ImportError, RuntimeError) as error:  # torchvision of another version of torch
        raise ChitaError(f"timm cannot be imported: {error}") from error
    return timm
