from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.tuner.engine.grammars import (
    END,
    byte_compiler,
    compiled,
    letter_compiler,
    letters,
    regex,
    schema,
    spelled,
)
from tuner.engine.errors import InvalidRequest
from tuner.engine.grammar import MAX_GRAMMAR_CHARS, GrammarKind, GrammarSource, GrammarState
from tuner.engine.verification.allowed import allowed_tokens
from tuner.engine.verification.rows import Block

PATTERN = "(ab|cd[a-e]*){1,4}w?"


def fed(state: GrammarState, token_ids: list[int]) -> GrammarState:
    assert all(state.advance(token) for token in token_ids)
    return state


def allowed_letters(state: GrammarState) -> str:
    return spelled(np.flatnonzero(state.allowed()).tolist())


def test_a_state_allows_what_the_grammar_does_and_refuses_the_rest_unchanged():
    state = compiled(regex("(ab|cd)*e")).start()

    assert allowed_letters(state) == "ace"
    assert not state.advance(letters("b")[0])
    assert allowed_letters(fed(state, letters("c"))) == "d"
    assert not state.is_over
    assert fed(state, letters("de")).is_over


def test_the_end_token_is_allowed_exactly_where_the_answer_may_end():
    state = compiled(regex("a(bc)*")).start()

    ends = [bool(fed(state, letters(letter)).allowed()[END]) for letter in "abcbc"]

    assert ends == [True, False, True, False, True]
    assert fed(state, [END]).is_over


def test_tokens_beyond_the_tokenizers_own_are_never_allowed():
    state = compiled(regex("[a-w]"), letter_compiler(vocab_size=40)).start()

    assert np.flatnonzero(state.allowed()).tolist() == list(range(END))


def drafts() -> st.SearchStrategy[tuple[list[int], list[int]]]:
    """Trees of letters that the pattern uses, each node with an earlier parent."""

    def tree(tokens: list[int]) -> st.SearchStrategy[tuple[list[int], list[int]]]:
        parents = st.tuples(*(st.integers(-1, node - 1) for node in range(len(tokens))))
        return parents.map(lambda chosen: (tokens, list(chosen)))

    return st.lists(st.sampled_from([*letters("abcdew"), END]), max_size=10).flatmap(tree)


@given(drafts(), st.sampled_from(["", "a", "ab", "cd", "abcde"]))
def test_each_position_of_a_tree_allows_what_follows_its_ancestors_one_by_one(
    draft: tuple[list[int], list[int]], before: str
):
    tokens, parents = draft
    grammar = compiled(regex(PATTERN))
    state = fed(grammar.start(), letters(before))
    block = Block.from_drafts([[5], tokens], [None, parents])
    logits = torch.zeros(block.num_positions, END + 1)

    allowed = allowed_tokens([None, state], block, logits)

    assert allowed is not None
    assert allowed[:2].all(), "a row without a grammar is held to none"
    for node in range(-1, len(tokens)):
        path: list[int] = []
        ancestor = node
        while ancestor >= 0:
            path.insert(0, tokens[ancestor])
            ancestor = parents[ancestor]
        one_by_one = fed(grammar.start(), letters(before))
        is_reached = all(not one_by_one.is_over and one_by_one.advance(token) for token in path)
        if is_reached and not one_by_one.is_over:
            np.testing.assert_array_equal(allowed[block.starts[1] + 1 + node], one_by_one.allowed())
    np.testing.assert_array_equal(state.allowed(), fed(grammar.start(), letters(before)).allowed())


def test_a_batch_without_a_grammar_needs_no_masks():
    assert allowed_tokens([None, None], Block.from_drafts([[], [1]]), torch.zeros(3, 8)) is None


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (schema({"type": "objekt"}), "structured_outputs: Invalid type: objekt"),
        (schema({"not": {"type": "string"}}), 'Unimplemented keys: \\["not"\\]'),
        (schema({"enum": []}), "Unsatisfiable schema"),
        (regex("("), "unclosed group"),
        (regex("(?=x)a"), "look-around"),
        (regex(""), "structured_outputs allows no text"),
        (regex("1"), "structured_outputs allows no text"),
        (GrammarSource(kind=GrammarKind.GRAMMAR, text='start: "a" b'), 'unknown name: "b"'),
        (regex("a" * (MAX_GRAMMAR_CHARS + 1)), f"{MAX_GRAMMAR_CHARS} is the most"),
    ],
)
def test_a_grammar_that_cannot_be_followed_is_refused_in_one_line(
    source: GrammarSource, message: str
):
    with pytest.raises(InvalidRequest, match=message) as caught:
        compiled(source)
    assert caught.value.param == "structured_outputs"
    assert "\n" not in caught.value.message


def test_the_deepest_nesting_that_fits_the_limit_ends_no_process():
    """On a thread of usual size the library's recursion overflows the stack at a third of this."""
    depth = 2000
    chain: dict[str, object] = {f"{n}": {"$ref": f"#/$defs/{n + 1}"} for n in range(depth)}
    source = schema({"$defs": {**chain, f"{depth}": {"type": "boolean"}}, "$ref": "#/$defs/0"})
    assert len(source.text) < MAX_GRAMMAR_CHARS

    state = compiled(source, byte_compiler()).start()

    assert state.allowed().sum() == 2


def test_choices_are_taken_literally():
    text = json.dumps(['a"b', "c.", "naïve", "x\ny"])
    grammar = compiled(GrammarSource(kind=GrammarKind.CHOICE, text=text), byte_compiler())

    for choice in json.loads(text):
        state = grammar.start()
        assert all(state.advance(token) for token in bytes_of(choice))
        assert state.is_over
    assert not fed(grammar.start(), bytes_of("c")).advance(bytes_of("x")[0])


def test_white_space_in_json_has_a_bound():
    state = compiled(schema({"type": "object"}), byte_compiler()).start()
    (space,) = bytes_of(" ")

    taken = sum(state.advance(token) for token in [*bytes_of("{"), *[space] * 100])

    assert taken == 1 + 32


def crowded() -> GrammarState:
    """A grammar that starts well and breaks a limit of the library with its first token."""
    properties = {f"{n}": {} for n in range(1000)}
    body = {"type": "object", "properties": properties, "additionalProperties": False}
    return compiled(schema(body), byte_compiler()).start()


def test_a_limit_of_the_library_is_a_fault_that_going_back_heals():
    state = crowded()
    before = state.allowed()

    (brace,) = bytes_of("{")
    assert state.advance(brace)

    assert state.fault
    assert not state.is_over
    assert not state.allowed().any()
    state.back()
    assert not state.fault
    np.testing.assert_array_equal(state.allowed(), before)


def test_a_source_has_the_form_that_vllm_takes():
    assert schema({"type": "object"}).to_dict() == {"json": {"type": "object"}}
    assert regex("a+").to_dict() == {"regex": "a+"}
    choice = GrammarSource(kind=GrammarKind.CHOICE, text='["x", "y"]')
    assert choice.to_dict() == {"choice": ["x", "y"]}


def bytes_of(text: str) -> list[int]:
    from tokenizers import pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    spelled_out = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    [(pieces, _)] = spelled_out.pre_tokenize_str(text)
    return [alphabet.index(piece) for piece in pieces]
