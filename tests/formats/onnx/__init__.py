"""Tests of ONNX graphs."""
