"""Runtimes that run a network from its ONNX file, one file each; `runtimes.py` lists them."""
