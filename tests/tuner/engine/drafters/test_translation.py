"""Text in the ids of two tokenizers, cut by cut."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer

from tests.tuner.engine.drafters.tokenizers import LETTERS, SYLLABLES, letters, syllables
from tests.tuner.engine.server.tiny_model import write_tiny_model
from tuner.engine.drafters.translation import Codec, Translation, continuation, piece
from tuner.engine.model.codec import HfCodec

NUM_PIECES = len(LETTERS) + len(SYLLABLES)
GROWTH = st.lists(
    st.lists(st.integers(0, NUM_PIECES - 1), min_size=1, max_size=40), min_size=1, max_size=12
)


@settings(deadline=None)
@given(growth=GROWTH)
def test_the_translation_of_a_growing_text_is_that_of_the_whole_text(
    growth: list[list[int]],
) -> None:
    source, target = syllables(), letters(LETTERS[::-1])
    translation = Translation(source, target)
    ids: list[int] = []
    for new in growth:
        ids.extend(new)
        before = translation.token_ids
        kept = translation.follow(ids)
        assert translation.token_ids == target.encode(source.decode(ids))
        assert kept == len(before)


@settings(deadline=None)
@given(growth=GROWTH)
def test_a_translation_into_longer_pieces_says_what_it_had_to_take_back(
    growth: list[list[int]],
) -> None:
    source, target = letters(), syllables()
    translation = Translation(source, target)
    ids: list[int] = []
    for new in growth:
        ids.extend(token % len(LETTERS) for token in new)
        before = translation.token_ids
        kept = translation.follow(ids)
        assert kept is not None
        assert target.decode(translation.token_ids) == source.decode(ids)
        assert translation.token_ids[:kept] == before[:kept]
        assert translation.token_ids[kept : kept + 1] != before[kept : kept + 1] or kept in (
            len(before),
            len(translation.token_ids),
        )


class Counting:
    """A codec that counts the characters it encodes."""

    def __init__(self, codec: Codec) -> None:
        self.eos_ids = codec.eos_ids
        self.num_encoded = 0
        self._codec = codec

    def encode(self, text: str) -> list[int]:
        self.num_encoded += len(text)
        return self._codec.encode(text)

    def decode(self, token_ids: Sequence[int]) -> str:
        return self._codec.decode(token_ids)


def test_a_token_more_costs_the_same_however_long_the_text_is() -> None:
    ids = random.Random(1).choices(range(24), k=3000)
    counting = Counting(syllables())
    translation = Translation(letters(), counting)
    translation.follow(ids[:2900])
    counting.num_encoded = 0
    for end in range(2901, 3001):
        translation.follow(ids[:end])
    assert counting.num_encoded < 100 * 80


@pytest.fixture(scope="module")
def bytes_codec(tmp_path_factory: pytest.TempPathFactory) -> HfCodec:
    path = write_tiny_model(tmp_path_factory.mktemp("tiny") / "tiny")
    return HfCodec(AutoTokenizer.from_pretrained(path), [])


def cut_to_bytes(codec: HfCodec, text: str) -> list[int]:
    return [token for letter in text for token in codec.encode(letter)]


def test_a_text_that_ends_within_a_character_is_not_translated(bytes_codec: HfCodec) -> None:
    ids = bytes_codec.encode("a short ") + cut_to_bytes(bytes_codec, "語")
    translation = Translation(bytes_codec, bytes_codec)
    assert translation.follow(ids[:-1]) is None
    assert translation.token_ids == []
    assert translation.follow(ids) == 0
    assert bytes_codec.decode(translation.token_ids) == "a short 語"


def test_a_continuation_spells_the_text_and_drops_a_partial_character(
    bytes_codec: HfCodec,
) -> None:
    committed = bytes_codec.encode("the answer of the ")
    ids = continuation(bytes_codec, committed, "model is\ufffd")
    assert bytes_codec.decode([*committed, *ids]) == "the answer of the model is"


def test_a_continuation_within_a_word_is_cut_as_it_stands_alone() -> None:
    codec = syllables()
    assert continuation(codec, codec.encode("a"), "bcd") == codec.encode("b") + codec.encode("cd")
    assert continuation(codec, codec.encode("x"), "abcd") == codec.encode("abcd")


def test_a_piece_is_what_the_last_tokens_add_to_the_text(bytes_codec: HfCodec) -> None:
    ids = bytes_codec.encode("naïve café")
    for start in range(len(ids)):
        head = bytes_codec.decode(ids[:start])
        if not head.endswith("\ufffd"):
            assert head + piece(bytes_codec, ids, start) == "naïve café"
