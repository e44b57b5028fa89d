"""`chita bench scale`: time and memory against the size of the problem."""
