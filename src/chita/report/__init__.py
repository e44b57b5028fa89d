"""Tables and figures of what pruning did."""
