"""What this process can have: the machine's memory, or what a control group leaves of it."""

from pathlib import Path

from quantflow.hardware.cgroup import MemoryLimit, memory_limit, processor_limit
from quantflow.hardware.memory import find_memory
from tests.hardware.systems import KB, make_system

UNIFIED = "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n"
FIRST_VERSION = (
    "cgroup /sys/fs/cgroup/memory cgroup rw,memory 0 0\ncgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0\n"
)


def test_without_a_group_the_machine_counts(tmp_path: Path) -> None:
    memory = find_memory(make_system(tmp_path))
    assert memory is not None
    assert (memory.total, memory.available, memory.limit) == (16_000 * KB, 8_000 * KB, None)
    assert memory.swap_free == 5 * KB


def test_a_system_that_does_not_say_is_unknown(tmp_path: Path) -> None:
    assert find_memory(tmp_path) is None


def test_a_container_of_version_2_has_what_its_limit_leaves(tmp_path: Path) -> None:
    files = {
        "sys/fs/cgroup/memory.max": f"{4_000 * KB}\n",
        "sys/fs/cgroup/memory.current": f"{3_000 * KB}\n",
        "sys/fs/cgroup/memory.stat": f"anon 1\ninactive_file {500 * KB}\n",
    }
    memory = find_memory(make_system(tmp_path, mounts=UNIFIED, groups="0::/\n", files=files))
    assert memory is not None
    # File cache can be dropped: it is no less available than free memory.
    assert memory.available == 1_500 * KB
    assert memory.total == memory.limit == 4_000 * KB


def test_the_tightest_of_nested_groups_counts(tmp_path: Path) -> None:
    files = {
        "sys/fs/cgroup/jobs/memory.max": f"{2_000 * KB}",
        "sys/fs/cgroup/jobs/memory.current": f"{1_900 * KB}",
        "sys/fs/cgroup/jobs/mine/memory.max": f"{1_500 * KB}",
        "sys/fs/cgroup/jobs/mine/memory.current": f"{100 * KB}",
    }
    root = make_system(tmp_path, mounts=UNIFIED, groups="0::/jobs/mine\n", files=files)
    assert memory_limit(root) == MemoryLimit(limit=2_000 * KB, left=100 * KB)


def test_no_limit_is_no_limit_in_either_version(tmp_path: Path) -> None:
    files = {
        "sys/fs/cgroup/memory.max": "max\n",
        "sys/fs/cgroup/memory.current": "1\n",
        "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
        "sys/fs/cgroup/memory/memory.usage_in_bytes": "1\n",
    }
    root = make_system(tmp_path, mounts=UNIFIED + FIRST_VERSION, groups="0::/\n4:memory:/\n", files=files)
    assert memory_limit(root) is None


def test_a_group_of_version_1_whose_path_is_the_hosts_is_found_at_the_mount(tmp_path: Path) -> None:
    files = {
        "sys/fs/cgroup/memory/memory.limit_in_bytes": f"{4_000 * KB}\n",
        "sys/fs/cgroup/memory/memory.usage_in_bytes": f"{1_000 * KB}\n",
        "sys/fs/cgroup/memory/memory.stat": f"total_inactive_file {200 * KB}\n",
    }
    root = make_system(tmp_path, mounts=FIRST_VERSION, groups="4:memory:/docker/0123\n", files=files)
    assert memory_limit(root) == MemoryLimit(limit=4_000 * KB, left=3_200 * KB)


def test_a_processor_quota_counts_in_whole_cores(tmp_path: Path) -> None:
    for number, text in enumerate(("250000 100000\n", "max 100000\n")):
        root = make_system(
            tmp_path / str(number), mounts=UNIFIED, groups="0::/\n", files={"sys/fs/cgroup/cpu.max": text}
        )
        assert processor_limit(root) == (3 if number == 0 else None)


def test_a_processor_quota_of_version_1(tmp_path: Path) -> None:
    files = {
        "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "50000\n",
        "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
    }
    root = make_system(tmp_path, mounts=FIRST_VERSION, groups="1:cpu:/\n", files=files)
    assert processor_limit(root) == 1
