"""The method that "auto" stands for in a language model."""

from __future__ import annotations

import logging
from dataclasses import replace

from torch import nn

from chita.curvature.layer_inputs import measurable_layers
from chita.errors import ChitaError
from chita.model.forward import unwrapped
from chita.model.token_models import predicts_tokens
from chita.model.weights import Weights
from chita.pruning.config import PruneConfig
from chita.pruning.options.text import AUTO

logger = logging.getLogger(__name__)

LAYER_WISE = "chita-layer"


def config_for(model: nn.Module, config: PruneConfig) -> PruneConfig:
    """Return the options for a model: in a language model, "auto" stands for `chita-layer`.

    Masks of a language model are far worse than layer-wise solves, also after training. "auto"
    remains a search with options that such solves do not have, and where the inputs of some layers
    cannot be measured.
    """
    if config.method != AUTO or not predicts_tokens(unwrapped(model)):
        return config
    try:
        measurable_layers(model, Weights(model, config.include, config.exclude))
        found = replace(config, method=LAYER_WISE, recover=config.recovers)
    except ChitaError:
        return config
    logger.info("method='auto' is method=%r for a language model", LAYER_WISE)
    return found
