"""The gradients that make the matrix A, for any model."""

from chita.gradients.assemble import Gradients, gradient_matrix
from chita.gradients.evaluate import mean_loss, part_losses
from chita.gradients.layer_inputs import layer_inputs
from chita.gradients.losses import Loss

__all__ = ["Gradients", "Loss", "gradient_matrix", "layer_inputs", "mean_loss", "part_losses"]
