"""What the worker asks of transformers."""

__version__ = "5.19.0"
