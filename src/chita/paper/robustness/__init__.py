"""`chita bench any`: one method for many kinds of networks."""
