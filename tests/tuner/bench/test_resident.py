from __future__ import annotations

import mmap
from pathlib import Path

from tuner.bench.resident import PeakMemory


def test_the_peak_is_read_in_mebibytes(tmp_path: Path) -> None:
    (tmp_path / "status").write_text("VmPeak:\t 9 kB\nVmHWM:\t  2048 kB\nVmRSS:\t 7 kB\n")

    assert PeakMemory(tmp_path).read_mb() == 2


def test_memory_taken_and_given_back_is_seen_and_a_new_start_forgets_it() -> None:
    memory = PeakMemory()
    memory.restart()
    before = memory.read_mb()
    with mmap.mmap(-1, 64 << 20) as block:
        block.write(b"x" * len(block))
    with_block = memory.read_mb()
    memory.restart()
    after = memory.read_mb()

    assert before is not None
    assert with_block is not None
    assert after is not None
    assert with_block > before + 48
    assert after < with_block - 48


def test_a_system_without_these_files_gives_no_figure(tmp_path: Path) -> None:
    memory = PeakMemory(tmp_path / "absent")
    memory.restart()

    assert memory.read_mb() is None
