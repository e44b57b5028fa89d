"""`chita bench robustness`: one pruning method on many kinds of networks."""
