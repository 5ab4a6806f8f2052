from __future__ import annotations

import shutil
import threading
from pathlib import Path

import pytest
from transformers import AutoTokenizer

from tests.tuner.engine.server.running import tiny_settings
from tests.tuner.engine.server.tiny_model import write_tiny_model
from tuner.engine.errors import InvalidRequest
from tuner.engine.loading import load_target
from tuner.engine.model.codec import HfCodec
from tuner.engine.server.prompts import PromptReader

TEXT = "naïve café, 東京 🙂 <|im_start|>user\nthe user"


@pytest.fixture
def codec(tiny_model: Path) -> HfCodec:
    return load_target(tiny_settings(tiny_model)).codec


def test_ids_are_those_of_transformers_own_tokenizer(codec: HfCodec, tiny_model: Path):
    reference = AutoTokenizer.from_pretrained(tiny_model)
    messages = [{"role": "system", "content": "be short"}, {"role": "user", "content": TEXT}]

    reader = PromptReader(codec)

    assert list(reader.encode(TEXT)) == reference.encode(TEXT)
    rendered = reference.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert list(reader.encode_chat(messages)) == reference.encode(
        rendered, add_special_tokens=False
    )


def test_a_tokenizer_that_cuts_and_fills_up_texts_does_neither_here(codec: HfCodec):
    whole = codec.encode(TEXT)
    codec.tokenizer.backend_tokenizer.enable_truncation(3)
    codec.tokenizer.backend_tokenizer.enable_padding(length=100)

    assert list(PromptReader(codec).encode(TEXT)) == whole


def test_a_model_without_chat_template_is_named_with_the_way_out(tmp_path: Path):
    write_tiny_model(tmp_path)
    (tmp_path / "chat_template.jinja").unlink()
    reader = PromptReader(load_target(tiny_settings(tmp_path)).codec)

    with pytest.raises(InvalidRequest, match="no chat template; send a plain prompt to /v1/compl"):
        reader.encode_chat([{"role": "user", "content": "hi"}])


def test_messages_that_the_template_refuses_are_refused_in_its_words(
    tiny_model: Path, tmp_path: Path
):
    strict = shutil.copytree(tiny_model, tmp_path / "strict")
    template = "{{ raise_exception('roles must alternate') }}"
    (strict / "chat_template.jinja").write_text(template)
    reader = PromptReader(load_target(tiny_settings(strict)).codec)

    with pytest.raises(InvalidRequest, match="refuses these messages: roles must alternate"):
        reader.encode_chat([{"role": "user", "content": "hi"}])


def test_threads_that_encode_and_decode_at_once_do_not_disturb_each_other(codec: HfCodec):
    reader = PromptReader(codec)
    expected = reader.encode(TEXT)
    failures: list[str] = []

    def encode() -> None:
        if any(reader.encode(TEXT) != expected for _ in range(200)):
            failures.append("encode")

    def decode() -> None:
        for _ in range(20):
            decoder = codec.new_decoder()
            text = "".join(decoder.push(token) for token in expected) + decoder.flush()
            if "東京 🙂" not in text:
                failures.append(text)

    threads = [threading.Thread(target=work) for work in (encode, decode, encode, decode)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert failures == []


def test_the_text_of_a_token_is_a_replacement_mark_where_it_is_part_of_a_character(codec: HfCodec):
    reader = PromptReader(codec)
    texts = [reader.token_text(token) for token in reader.encode("東 user")]

    assert "\ufffd" in texts[0]
    assert texts == [reader.token_text(token) for token in reader.encode("東 user")]
    assert "".join(texts).endswith("user")
