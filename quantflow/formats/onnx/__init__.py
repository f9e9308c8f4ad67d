"""ONNX graphs: made of a checkpoint, quantized by rewriting, read back and looked through."""
