"""LiteLLM against an engine: ``python check_litellm.py URL MODEL TOKENIZER``."""

from __future__ import annotations

import sys

import litellm
from rows import refused, works

URL, MODEL = sys.argv[1:3]
PLACE = {"model": f"openai/{MODEL}", "api_base": f"{URL}/v1", "api_key": "any", "max_retries": 0}
TEXT = {**PLACE, "model": f"text-completion-openai/{MODEL}"}
HELLO = [{"role": "user", "content": "Say hello."}]
TOOL = {"type": "function", "function": {"name": "now", "parameters": {"type": "object"}}}
CITY = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
FORMAT = {"type": "json_schema", "json_schema": {"name": "city", "schema": CITY}}


def chat(**ask):
    return litellm.completion(**{**PLACE, "messages": HELLO, "max_tokens": 6, **ask})


def sent_back(as_dict: bool):
    message = chat().choices[0].message
    return chat(messages=[*HELLO, message.model_dump() if as_dict else message, *HELLO])


works("chat", lambda: chat().usage.completion_tokens)
works("chat, streamed", lambda: list(chat(stream=True)))
works("chat, answer sent back", lambda: sent_back(as_dict=False))
works("chat, answer sent back as a dict", lambda: sent_back(as_dict=True))
works("n", lambda: len(chat(n=2).choices) == 2)
works("tool_choice none", lambda: chat(tools=[TOOL], tool_choice="none"))
works("JSON schema", lambda: chat(response_format=FORMAT, max_tokens=60, temperature=0))
works("text completion", lambda: litellm.text_completion(**TEXT, prompt="One", max_tokens=4))
works(
    "text completion, several prompts",
    lambda: len(litellm.text_completion(**TEXT, prompt=["a", "b"], max_tokens=4).choices) == 2,
)
refused("tools", lambda: chat(tools=[TOOL]), "template shows no tools")
