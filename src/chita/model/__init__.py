"""A torch model and its data: prunable weights, layer kinds, batches, forward pass, losses."""
