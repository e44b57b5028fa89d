"""The methods that gradual pruning is compared with, one file each."""
