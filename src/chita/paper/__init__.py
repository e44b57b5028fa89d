"""Reproduction of the paper's tables and figures: `chita bench NAME`."""
