"""Sets what `quantflow plan` estimates beside what the stored stages of a workspace really took.

    python benchmarks/plan.py [FOLDER …] [--parts]

FOLDER is one that holds `.quantflow/` (default: the working directory); run recipes in it first, on this
machine. Every stored stage that recorded its processor time and peak memory is counted anew from the model
and text it had. Three estimates stand beside what was recorded:

- seconds counted: work over the machine's measured speed. That is the time on a machine left alone, so it is
  set beside wall time and beside processor time; where other programs had the cores, only the latter says
  anything, and it does so for one thread (OMP_NUM_THREADS=1).
- seconds learned: the same corrected by what the *other* stored stages of that kind took.
- peak memory and bytes on disk.

The last line of output is one JSON object.
"""

import argparse
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import median
from typing import Any

from quantflow.pipeline.store import WORKSPACE, Store
from quantflow.plan.fit import PROCESS_BYTES
from quantflow.plan.learned import LEAST_SECONDS, Past, learn, past_stages
from quantflow.plan.speed import Speed, find_speed

AIM = 0.25
"""Largest part by which an estimate is to miss."""


def main() -> None:
    """Compare and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", nargs="*", type=Path, default=[Path.cwd()], metavar="FOLDER")
    parser.add_argument("--parts", action="store_true", help="show what each stage's seconds are made of")
    options = parser.parse_args()
    speed: Speed | None = None
    rows: list[dict[str, Any]] = []
    for folder in options.folders:
        workspace = folder.resolve() / WORKSPACE
        past = [
            stage for stage in past_stages(Store(workspace / "store")) if stage.cost.host_bytes is not None
        ]
        if past and speed is None:
            speed = find_speed(workspace, "cpu", lambda: print("measuring this machine …"))
        if speed is not None:
            rows += [row | {"folder": folder.name} for row in _rows(past, speed, parts=options.parts)]
    for row in rows:
        print(_line(row))
    print(json.dumps(_summary(rows, speed)))


def _rows(past: list[Past], speed: Speed, *, parts: bool) -> Iterator[dict[str, Any]]:
    for stage in past:
        usage, cost = stage.manifest.usage, stage.cost
        assert usage is not None
        assert cost.host_bytes is not None
        here = usage.computed_on == speed.machine
        counted = speed.seconds(cost.work) if cost.work is not None and here else None
        others = learn([other for other in past if other is not stage], speed).get(stage.function)
        if parts and cost.work is not None:
            found = {
                kind: round(seconds, 2) for kind, seconds in speed.parts(cost.work).items() if seconds > 0.05
            }
            print(f"{stage.manifest.stage}: {found}")
        yield {
            "stage": stage.manifest.stage,
            "seconds": stage.manifest.seconds,
            "cpu_seconds": usage.cpu_seconds,
            "seconds_counted": counted,
            "seconds_learned": counted * others.ratio if counted is not None and others else None,
            "memory": usage.peak_memory,
            "memory_estimated": PROCESS_BYTES + cost.host_bytes,
            "disk": sum(record.size for record in stage.manifest.files.values()),
            "disk_estimated": cost.disk_bytes,
        }


def _line(row: Mapping[str, Any]) -> str:
    def pair(real: float | None, estimated: float | None, scale: float) -> str:
        if not real or estimated is None:
            return f"{'–':>24}"
        return f"{real / scale:9.2f} / {estimated / scale:9.2f} ({estimated / real - 1:+4.0%})"

    pairs = {
        "wall s": pair(row["seconds"], row["seconds_counted"], 1),
        "cpu s": pair(row["cpu_seconds"], row["seconds_counted"], 1),
        "memory MB": pair(row["memory"], row["memory_estimated"], 1e6),
        "disk MB": pair(row["disk"], row["disk_estimated"], 1e6),
    }
    cells = "  ".join(f"{name} {text}" for name, text in pairs.items())
    return f"{row['folder']:>10} {row['stage']:>9}  {cells}"


def _summary(rows: list[dict[str, Any]], speed: Speed | None) -> dict[str, Any]:
    long = [row for row in rows if row["cpu_seconds"] >= LEAST_SECONDS]
    large = [row for row in rows if row["disk"] >= 1_000_000]
    return {
        "benchmark": "plan",
        "machine": speed.machine if speed is not None else None,
        "aim": AIM,
        "stages": len(rows),
        "seconds_counted_beside_wall": _errors(long, "seconds", "seconds_counted"),
        "seconds_counted_beside_cpu": _errors(long, "cpu_seconds", "seconds_counted"),
        "seconds_learned_beside_wall": _errors(long, "seconds", "seconds_learned"),
        "memory": _errors(rows, "memory", "memory_estimated"),
        "disk": _errors(large, "disk", "disk_estimated"),
        "rows": rows,
    }


def _errors(rows: list[dict[str, Any]], real: str, estimated: str) -> dict[str, Any]:
    """Relative errors of the stages that have both figures."""
    pairs = [(row[real], row[estimated]) for row in rows if row[real] and row[estimated] is not None]
    errors: list[float] = [guess / fact - 1 for fact, guess in pairs]
    if not errors:
        return {"stages": 0}
    return {
        "stages": len(errors),
        "within_aim": sum(abs(error) <= AIM for error in errors),
        "median_error": round(median(errors), 3),
        "worst_error": round(max((abs(error), error) for error in errors)[1], 3),
    }


if __name__ == "__main__":
    main()
