"""lm-eval tasks on QuantFlow's own runtimes, the same prompts in the same batches for both sides."""
