"""Samples: the forms users give them in, batches, passes over a stream, and the held-out split."""
