"""Curvature sources: a model and samples -> a local quadratic model of the loss."""

from chita.curvature.both import InputsAndGradients
from chita.curvature.fisher import Fisher, Gradients, gradient_matrix
from chita.curvature.layer_inputs import BlockInputs, DenseOutputs, LayerInputs
from chita.curvature.source import CurvatureSource, LocalModel, NoCurvature, SampledModel

__all__ = [
    "BlockInputs",
    "CurvatureSource",
    "DenseOutputs",
    "Fisher",
    "Gradients",
    "InputsAndGradients",
    "LayerInputs",
    "LocalModel",
    "NoCurvature",
    "SampledModel",
    "gradient_matrix",
]
