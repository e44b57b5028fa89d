"""The rivals. OBD, OBS, WoodFisher, WoodTaylor and M-FAC remove weights by the inverse of the
damped Fisher; CBS searches its support by swaps; L-OBS goes layer by layer.

With H = A^T A + mu I and mu = n lambda, their damped Fisher is H / n: rankings and updates are the
same with the inverse of either, and H is what the code works with.
"""
