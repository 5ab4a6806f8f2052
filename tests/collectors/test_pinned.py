"""What the digest of a pinned configuration covers."""

from __future__ import annotations

from dataclasses import replace

from collectors.records import PinnedConfig

CONFIG = PinnedConfig(
    model="tiny",
    weights_hash="w",
    tokenizer_hash="t",
    dtype="float32",
    device="cpu",
    engine="spectuner 0.1.0",
    attention_backend="slots",
    max_rows=4,
)


def test_what_drafters_were_told_is_pinned_and_read_back() -> None:
    told = replace(CONFIG, drafting={"draft_min_confidence": 0.3, "draft_schedule": "heuristic"})
    otherwise = replace(told, drafting={**told.drafting, "draft_min_confidence": 0.4})
    assert PinnedConfig.from_dict(told.to_dict()) == told
    assert len({CONFIG.digest, told.digest, otherwise.digest}) == 3


def test_a_configuration_stored_before_drafters_could_be_told_anything_keeps_its_digest() -> None:
    stored = CONFIG.to_dict()
    assert "drafting" not in stored
    assert PinnedConfig.from_dict(stored).digest == CONFIG.digest
