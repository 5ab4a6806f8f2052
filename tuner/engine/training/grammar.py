"""Texts put together from lists of texts that name each other: a small grammar.

Called by prompts.py for the kinds of tasks.toml. A text may hold slots in braces:

- `{list}` is a random entry of that list, itself filled in.
- `{list#a}` is the same entry wherever it stands in one text, and another one than `{list#b}`.
- `{3-40}` is a number from 3 to 40, `{3-40#n}` the same number everywhere.
- `{2-4*list}` is two to four different entries, one after another.
- `{an list}` puts the English article before the entry; `{^list}` begins with a capital.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping, Sequence

from tuner.engine.training.errors import MaterialError

_SLOT = re.compile(
    r"\{(?P<capital>\^)?(?P<article>an )?(?:(?P<fewest>\d+)(?:-(?P<most>\d+))?\*)?"
    r"(?P<what>(?P<name>[a-z_]\w*)|(?P<low>\d+)-(?P<high>\d+))(?P<tag>#\w+)?\}"
)
_NUM_DRAWS = 4
_Kept = dict[str, dict[str, str]]
"""By list, what stands in its tagged slots so far."""


class Grammar:
    """Lists of texts with slots, and functions that write a text of their own."""

    def __init__(
        self,
        lists: Mapping[str, Sequence[str]],
        sources: Mapping[str, Callable[[random.Random], str]] | None = None,
    ) -> None:
        """Take over the lists; `sources` are lists that a function draws from."""
        self._lists = lists
        self._sources = sources or {}

    def write(self, rng: random.Random, start: str) -> str:
        """Return a random text of the list `start`.

        Raises:
            MaterialError: a slot names no list, or asks for more entries than its list holds.
        """
        return self._drawn(rng, start, {})

    def _drawn(self, rng: random.Random, name: str, kept: _Kept) -> str:
        if name in self._sources:
            return self._sources[name](rng)
        return self._filled(rng, rng.choice(self._entries(name)), kept)

    def _entries(self, name: str) -> Sequence[str]:
        if name not in self._lists:
            raise MaterialError(f"a text names the list {name!r}, which is missing: add it")
        return self._lists[name]

    def _filled(self, rng: random.Random, text: str, kept: _Kept) -> str:
        def fill(slot: re.Match[str]) -> str:
            found = self._tagged(rng, slot, kept) if slot["tag"] else self._slot(rng, slot, kept)
            if slot["article"]:
                found = f"{'an' if found[:1].lower() in 'aeiou' else 'a'} {found}"
            return found[:1].upper() + found[1:] if slot["capital"] else found

        return _SLOT.sub(fill, text)

    def _tagged(self, rng: random.Random, slot: re.Match[str], kept: _Kept) -> str:
        """Return what the tag stands for; a new one is drawn so that no other tag has it."""
        tags = kept.setdefault(slot["what"], {})
        if slot["tag"] not in tags:
            drawn = [self._slot(rng, slot, kept) for _ in range(_NUM_DRAWS)]
            taken = set(tags.values())
            tags[slot["tag"]] = next((text for text in drawn if text not in taken), drawn[0])
        return tags[slot["tag"]]

    def _slot(self, rng: random.Random, slot: re.Match[str], kept: _Kept) -> str:
        if slot["name"] is None:
            return str(rng.randint(int(slot["low"]), int(slot["high"])))
        if slot["fewest"] is None:
            return self._drawn(rng, slot["name"], kept)
        fewest = int(slot["fewest"])
        count = rng.randint(fewest, int(slot["most"] or fewest))
        entries = self._entries(slot["name"])
        if count > len(entries):
            raise MaterialError(f"list {slot['name']!r} holds fewer than {count} entries: add some")
        return " ".join(self._filled(rng, text, kept) for text in rng.sample(entries, count))
