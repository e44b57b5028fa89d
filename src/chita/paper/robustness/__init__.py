"""`chita bench any`: one pruning method on many kinds of networks."""
