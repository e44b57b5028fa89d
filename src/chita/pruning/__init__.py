"""`chita.prune`: its options, its stages and its result."""
