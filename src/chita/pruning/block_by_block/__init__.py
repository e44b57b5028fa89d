"""Pruning block by block: the inputs of a block come from blocks that are pruned already."""
