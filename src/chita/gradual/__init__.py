"""Pruning while training (section 4.2), and its rivals."""
