"""Stop strings and the decoder of partial characters."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer

from tests.tuner.engine.server.tiny_model import write_tiny_model
from tuner.engine.model.codec import HfCodec
from tuner.engine.text import StopMatch, StopScanner


def scan(pieces: list[str], stops: list[str]) -> tuple[str, str | None]:
    """Text delivered and the stop that ended it."""
    scanner = StopScanner(stops)
    delivered = ""
    for piece in pieces:
        found = scanner.push(piece)
        if isinstance(found, StopMatch):
            return delivered + found.text, found.stop
        delivered += found
    return delivered + scanner.flush(), None


def test_the_earliest_match_in_the_text_wins() -> None:
    assert scan([" The user is a"], ["a", "is", ","]) == (" The user ", "is")


@given(
    text=st.text("abc", max_size=30),
    stops=st.lists(st.text("abc", min_size=1, max_size=4), max_size=3),
    data=st.data(),
)
def test_no_cut_of_the_text_into_pieces_changes_what_is_delivered(
    text: str, stops: list[str], data: st.DataObject
) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    edges = [0, *cuts, len(text)]
    pieces = [text[a:b] for a, b in itertools.pairwise(edges)]
    delivered, stop = scan(pieces, stops)
    if stop is None:
        assert delivered == text
        assert not any(each in text for each in stops)
    else:
        assert text.startswith(delivered + stop)
        assert not any(each in delivered for each in stops)


@given(
    text=st.text("ab", max_size=20),
    stops=st.lists(st.text("ab", min_size=1, max_size=3), min_size=1, max_size=3),
)
def test_one_character_at_a_time_stops_no_later_than_any_stop_string_is_complete(
    text: str, stops: list[str]
) -> None:
    delivered, stop = scan(list(text), stops)
    ends = [text.find(each) + len(each) for each in stops if each in text]
    if not ends:
        assert (delivered, stop) == (text, None)
    else:
        assert len(delivered) + len(stop or "") == min(ends)


@pytest.fixture(scope="module")
def codec(tmp_path_factory: pytest.TempPathFactory) -> HfCodec:
    path: Path = write_tiny_model(tmp_path_factory.mktemp("tiny"))
    return HfCodec(AutoTokenizer.from_pretrained(path), (1,))


@pytest.mark.parametrize("text", ["naïve café, 東京", "🙂 and 🙂🙂", " leading space", ""])
def test_a_text_decoded_token_by_token_is_the_text(codec: HfCodec, text: str) -> None:
    decoder = codec.new_decoder()
    assert "".join(decoder.push(token) for token in codec.encode(text)) == text
    assert decoder.flush() == ""


def test_a_character_cut_off_at_the_end_is_held_back_until_flushed(codec: HfCodec) -> None:
    ids = codec.encode("a🙂")
    decoder = codec.new_decoder()
    assert "".join(decoder.push(token) for token in ids[:-1]) == "a"
    assert "�" in decoder.flush()
