"""The numbered in-memory journal that the service reads by cursor pull.

The engine thread appends, server threads read pages. A ring: the oldest records are overwritten,
and their number is never hidden.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TypeAlias

from collectors.records import JournalPage, JournalRecord

Observer: TypeAlias = Callable[[JournalRecord], None]


class Journal:
    """A ring of records, numbered from 1 at each start of the process."""

    def __init__(
        self, boot_id: str, capacity: int = 100_000, observers: Sequence[Observer] = ()
    ) -> None:
        """Start empty.

        Args:
            boot_id: changes with each start of the process.
            capacity: records held at most.
            observers: called with each record after it was stored, in the appending thread.
        """
        if capacity < 1:
            raise ValueError(f"journal capacity must be at least 1 record, got {capacity}")
        self.boot_id = boot_id
        self.capacity = capacity
        self._observers = tuple(observers)
        self._ring: list[JournalRecord] = []
        self._last_seq = 0
        self._lock = threading.Lock()

    @property
    def last_seq(self) -> int:
        """Newest number written; 0 before the first."""
        return self._last_seq

    @property
    def num_lost(self) -> int:
        """Records overwritten since the start, read or not."""
        return max(0, self._last_seq - self.capacity)

    def next_seq(self) -> int:
        """Return the number that the next append will be given."""
        return self._last_seq + 1

    def append(self, build: Callable[[int], JournalRecord]) -> JournalRecord:
        """Store the record that ``build`` makes of its number.

        Args:
            build: called once, with the number; where it raises, the number is not used up.

        Raises:
            ValueError: the record carries another number.
        """
        with self._lock:
            seq = self._last_seq + 1
            record = build(seq)
            if record.seq != seq:
                raise ValueError(f"journal record must carry number {seq}, got {record.seq}")
            if len(self._ring) < self.capacity:
                self._ring.append(record)
            else:
                self._ring[(seq - 1) % self.capacity] = record
            self._last_seq = seq
        for observe in self._observers:
            observe(record)
        return record

    def page(self, after: int, limit: int, boot_id: str | None = None) -> JournalPage:
        """Return up to ``limit`` records after a cursor, oldest first, without gaps.

        Args:
            after: cursor, the last number the reader has.
            limit: records at most.
            boot_id: boot the cursor belongs to; with another boot's, ``after`` counts as 0.
        """
        if boot_id is not None and boot_id != self.boot_id:
            after = 0
        with self._lock:
            first_seq = max(1, self._last_seq - self.capacity + 1)
            start = max(after + 1, first_seq)
            stop = min(self._last_seq + 1, start + limit)
            held = tuple(self._ring[(seq - 1) % self.capacity] for seq in range(start, stop))
            return JournalPage(
                boot_id=self.boot_id, first_seq=first_seq, last_seq=self._last_seq, records=held
            )
