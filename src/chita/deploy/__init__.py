"""Pruned networks in use: faster layers, timing, ONNX."""
