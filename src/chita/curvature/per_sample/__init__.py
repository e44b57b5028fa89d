"""Per-sample gradient rules, one file for each type of layer."""
