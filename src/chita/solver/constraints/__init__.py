"""Which supports are allowed: any k weights, N:M groups, limits of layers, tiles."""
