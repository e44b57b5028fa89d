"""Recovery: train the remaining weights of a pruned network to give the dense outputs again."""
