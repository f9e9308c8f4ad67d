from pathlib import Path

from quantflow.hardware.processor import find_processor
from tests.hardware.systems import make_system

INTEL = "processor\t: 0\nmodel name\t: Example 9000 CPU\nflags\t\t: fpu avx2 avx512_vnni amx_int8\n"
ARM = "processor\t: 0\nFeatures\t: fp asimd asimddp bf16\nCPU part\t: 0xd40\n"


def test_name_and_flags_are_read(tmp_path: Path) -> None:
    processor = find_processor(make_system(tmp_path, files={"proc/cpuinfo": INTEL}))
    assert processor.name == "Example 9000 CPU"
    assert {"avx2", "avx512_vnni", "amx_int8"} <= processor.flags
    assert processor.cores >= 1


def test_arm_lists_its_features_otherwise(tmp_path: Path) -> None:
    processor = find_processor(make_system(tmp_path, files={"proc/cpuinfo": ARM}))
    assert {"asimddp", "bf16"} <= processor.flags


def test_a_system_that_does_not_say_has_no_flags(tmp_path: Path) -> None:
    assert find_processor(tmp_path).flags == frozenset()
