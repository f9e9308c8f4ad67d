"""Whether torch computes here, asked of torch in a process of its own, as a broken one may take its down."""

import json
import subprocess
import sys

from pydantic import BaseModel, ConfigDict, ValidationError

# Seconds: an import from a cold disk takes long, one that hangs takes forever.
PATIENCE = 180
PROGRAM = """
import json, torch
def right(device):
    ones = torch.ones(64, 64, device=device)
    return bool((ones @ ones == 64).all())
cuda = torch.cuda.is_available()
print(json.dumps({
    "threads": torch.get_num_threads(),
    "cpu_right": right("cpu"),
    "cuda_build": torch.version.cuda or "",
    "cuda_devices": torch.cuda.device_count() if cuda else 0,
    "cuda_right": right("cuda") if cuda else None,
}))
"""


class TorchAnswer(BaseModel):
    """What torch says of itself.

    Attributes:
        threads: Threads it computes with.
        cpu_right: Whether a product on the processor comes out right.
        cuda_build: CUDA version it was built for; empty for a build without.
        cuda_devices: GPUs it can use.
        cuda_right: Whether a product on the GPU comes out right; None without one.
        broken: Why there is no answer; empty where there is.
    """

    model_config = ConfigDict(frozen=True)

    threads: int = 0
    cpu_right: bool = False
    cuda_build: str = ""
    cuda_devices: int = 0
    cuda_right: bool | None = None
    broken: str = ""


def ask_torch() -> TorchAnswer:
    """Import torch and compute a little, elsewhere."""
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-c", PROGRAM],
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=True,
        )
        return TorchAnswer.model_validate(json.loads(done.stdout.splitlines()[-1]))
    except subprocess.TimeoutExpired:
        return TorchAnswer(broken=f"it did not answer within {PATIENCE} s")
    except subprocess.CalledProcessError as error:
        if error.returncode < 0:
            return TorchAnswer(broken=f"it crashed (signal {-error.returncode})")
        lines = error.stderr.strip().splitlines()
        return TorchAnswer(broken=lines[-1] if lines else f"it ended with code {error.returncode}")
    except (IndexError, ValueError, ValidationError) as error:
        return TorchAnswer(broken=f"its answer makes no sense: {error}")
