"""QuantFlow: quantize a language model, with the evidence on which to ship or refuse it."""
