"""Recovery: train what is left of a pruned network to give the dense network's outputs."""
