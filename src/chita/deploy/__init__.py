"""Deployment of pruned networks: faster layers, timing and ONNX files."""
