"""The gradients that make the matrix A, for any model."""

from chita.curvature.fisher import Gradients, gradient_matrix
from chita.curvature.layer_inputs import layer_inputs
from chita.model.losses import Loss, mean_loss, part_losses

__all__ = ["Gradients", "Loss", "gradient_matrix", "layer_inputs", "mean_loss", "part_losses"]
