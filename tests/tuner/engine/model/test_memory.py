from __future__ import annotations

import mmap
import sys
from pathlib import Path

import pytest

from tuner.engine.model.memory import gather_into_huge_pages, keep_freed_memory, large_regions

HUGE = 2**21


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="a setting of glibc")
def test_freed_memory_can_be_kept_and_asking_twice_does_no_harm() -> None:
    assert keep_freed_memory()
    assert keep_freed_memory()


def test_regions_in_huge_pages_hold_what_they_held() -> None:
    size = 16 * HUGE
    with mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as region:
        pattern = bytes(range(256)) * (size // 256)
        region.write(pattern)
        if not gather_into_huge_pages():
            pytest.skip("this system collapses no pages")
        assert region[:] == pattern


def test_nothing_is_moved_where_the_system_lists_no_regions(tmp_path: Path) -> None:
    assert gather_into_huge_pages(tmp_path / "missing") == 0


def test_a_mapped_file_may_have_any_name(tmp_path: Path) -> None:
    maps = tmp_path / "maps"
    maps.write_bytes(b"40000000-44000000 rw-p 00000000 fe:00 77        /mod\xe8les/weights\n")
    assert gather_into_huge_pages(maps) == 0


def test_only_large_anonymous_writable_regions_are_moved_cut_to_whole_pages() -> None:
    lines = [
        "00100000-02300000 rw-p 00000000 00:00 0",
        "10000000-14000000 rw-p 00000000 00:00 0                          [heap]",
        "20000000-20400000 rw-p 00000000 00:00 0",
        "30000000-34000000 r--p 00000000 00:00 0",
        "40000000-44000000 rw-p 00000000 fe:00 77                         /model/weights",
        "50000000-54000000 rw-p 00000000 00:00 0                          [stack]",
    ]
    assert list(large_regions(lines)) == [
        (HUGE, 0x2200000 - HUGE),
        (0x10000000, 0x4000000),
    ]
