"""Free memory is the machine's or the container's, whichever is less."""

from __future__ import annotations

from pathlib import Path

from assay.machine import available_memory

GB = 1 << 30


def machine(root: Path, free_kb: int, cgroup: str) -> Path:
    proc = root / "proc"
    (proc / "self").mkdir(parents=True)
    (proc / "meminfo").write_text(f"MemTotal: 99 kB\nMemAvailable: {free_kb} kB\n")
    (proc / "self" / "cgroup").write_text(cgroup)
    return proc


def limit(folder: Path, most: str, used: int, cached: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "memory.max").write_text(f"{most}\n")
    (folder / "memory.current").write_text(f"{used}\n")
    (folder / "memory.stat").write_text(f"anon 1\ninactive_file {cached}\n")


def test_the_nearest_limit_counts(tmp_path: Path) -> None:
    proc, groups = machine(tmp_path, 64 << 20, "0::/job/step\n"), tmp_path / "cg"
    limit(groups / "job", str(8 * GB), 5 * GB, GB)
    limit(groups / "job" / "step", "max", 3 * GB, 0)
    assert available_memory(proc, groups) == 4 * GB


def test_version_1_and_no_limit_at_all(tmp_path: Path) -> None:
    proc, groups = machine(tmp_path, 64 << 20, "5:cpu:/a\n4:memory:/a\n"), tmp_path / "cg"
    assert available_memory(proc, groups) == 64 * GB
    folder = groups / "memory" / "a"
    folder.mkdir(parents=True)
    (folder / "memory.limit_in_bytes").write_text(str(2 * GB))
    (folder / "memory.usage_in_bytes").write_text(str(GB))
    (folder / "memory.stat").write_text("total_inactive_file 0\n")
    assert available_memory(proc, groups) == GB
    assert available_memory(tmp_path / "none", groups) is None


def test_a_group_over_its_limit_has_nothing_left(tmp_path: Path) -> None:
    proc, groups = machine(tmp_path, 64 << 20, "0::/job\n"), tmp_path / "cg"
    limit(groups / "job", str(GB), 2 * GB, 0)
    assert available_memory(proc, groups) == 0
