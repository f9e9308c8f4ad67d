"""What the worker asks of torch, without the seconds that importing it takes."""

from types import SimpleNamespace

__version__ = "2.13.0+cpu"
cuda = SimpleNamespace(is_initialized=lambda: False)
backends = SimpleNamespace(cpu=SimpleNamespace(get_cpu_capability=lambda: "AVX2"))


def get_num_threads() -> int:
    return 1
