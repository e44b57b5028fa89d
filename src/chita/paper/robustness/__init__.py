"""`chita bench robustness`: one method for many kinds of networks."""
