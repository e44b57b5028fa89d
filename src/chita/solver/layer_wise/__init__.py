"""The l0 problem of one layer, whose output rows share one Gram matrix of inputs."""
