from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.workflows.redaction import redact, redact_values


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("write to Ann.Lee+x@mail.example.co.uk now", "write to [email] now"),
        ("card 4111 1111 1111 1111.", "card [number]."),
        ("call +49 (170) 123-4567 please", "call [number] please"),
        ("id 1234567", "id [number]"),
        ("key sk-abcDEF1234567890", "key [key]"),
        ("ghp_abcdefghijklmnop1234", "[key]"),
        ("AKIAIOSFODNN7EXAMPLE", "[key]"),
        ("github_pat_11ABCDEFG0abcdefghijkl_xyz", "[key]"),
        ("open db://ann:open-sesame@db.example.com/x", "open db://ann:[key]@db.example.com/x"),
        ("Authorization: Bearer abc.def-ghi12345", "Authorization: [key]"),
        ("password: hunter2222", "password: [key]"),
        ('"api_key": "0a1b2c3d4e"', '"api_key": "[key]"'),
        ("eyJhbGciOiJIUzI1.eyJzdWIiOiIxMjM0.sig", "[key]"),
        ("0123456789abcdef0123456789abcdef", "[key]"),
        ("-----BEGIN RSA PRIVATE KEY-----\nMIIE\nabc\n-----END RSA PRIVATE KEY-----", "[key]"),
        ("-----BEGIN PRIVATE KEY-----\ncut in the middle", "[key]"),
    ],
)
def test_what_must_not_reach_a_disk_is_blanked_out(text: str, clean: str):
    assert redact(text) == (clean, 1)


@pytest.mark.parametrize(
    "text",
    [
        "def add(a: int, b: int) -> int:\n    return a + b  # 123456",
        "on 2026-11-30 at 12:45 we sold 1,234 of 5.678",
        "version 3.11.7, pi is 3.14159265",
        "token budget: 96, the secret garden, a basic idea",
        "naïve 🙂 東京",
        "see http://127.0.0.1:8400/api or http://example.com/@ann",
        "",
    ],
)
def test_ordinary_text_stays_as_it_is(text: str):
    assert redact(text) == (text, 0)


def test_every_place_is_counted():
    assert redact("a@b.de, c@d.de and 12345678") == ("[email], [email] and [number]", 3)


def test_what_no_database_holds_is_replaced_and_counted():
    assert redact("a\x00b") == ("a\N{REPLACEMENT CHARACTER}b", 1)
    assert redact("half \ud83d pair") == ("half ? pair", 1)


@given(st.text(max_size=200))
def test_the_result_can_be_stored_and_needs_no_second_pass(text: str):
    clean, _ = redact(text)

    clean.encode()
    assert "\x00" not in clean
    assert redact(clean) == (clean, 0)


def test_texts_inside_sampling_parameters_are_redacted_too():
    values, count = redact_values(
        {"stop": ["a@b.de", "\n"], "seed": None, "structured_outputs": {"choice": ["c@d.de"]}}
    )

    assert values == {
        "stop": ["[email]", "\n"],
        "seed": None,
        "structured_outputs": {"choice": ["[email]"]},
    }
    assert count == 2
