"""The official SDK against an engine: ``python check_openai.py URL MODEL TOKENIZER``."""

from __future__ import annotations

import asyncio
import sys

import openai
import pydantic
from rows import refused, works

URL, MODEL = sys.argv[1:3]
CLIENT = openai.OpenAI(base_url=f"{URL}/v1", api_key="any", max_retries=0)
HELLO = [{"role": "user", "content": "Say hello."}]
TOOL = {"type": "function", "function": {"name": "now", "parameters": {"type": "object"}}}
RESULT = {"role": "tool", "tool_call_id": "c1", "content": "noon"}


class City(pydantic.BaseModel):
    name: str


def complete(**ask):
    return CLIENT.completions.create(
        **{"model": MODEL, "prompt": "One two", "max_tokens": 4, **ask}
    )


def chat(**ask):
    ask = {"model": MODEL, "messages": HELLO, "max_tokens": 6, **ask}
    return CLIENT.chat.completions.create(**ask)


def sent_back():
    messages = [*HELLO, chat().choices[0].message, *HELLO]
    return chat(messages=messages).choices[0].message.content is not None


def streamed(**ask):
    chunks = list(chat(stream=True, stream_options={"include_usage": True}, **ask))
    seen = {choice.index for chunk in chunks for choice in chunk.choices}
    return chunks[-1].usage.completion_tokens and len(seen) == ask.get("n", 1)


def scored():
    told = complete(echo=True, max_tokens=0, logprobs=2).choices[0].logprobs
    return told.token_logprobs[0] is None and all(value < 0 for value in told.token_logprobs[1:])


def parsed():
    answer = CLIENT.chat.completions.parse(
        model=MODEL, messages=HELLO, response_format=City, max_tokens=60, temperature=0
    )
    return isinstance(answer.choices[0].message.parsed, City)


async def asked_at_once():
    async with openai.AsyncOpenAI(base_url=f"{URL}/v1", api_key="any", max_retries=0) as client:
        asks = [
            client.chat.completions.create(model=MODEL, messages=HELLO, max_tokens=4)
            for _ in range(4)
        ]
        return len(await asyncio.gather(*asks)) == 4


works("models", lambda: CLIENT.models.list().data[0].id == MODEL)
works("completion", lambda: complete().choices[0].text)
works("completion, streamed", lambda: list(complete(stream=True)))
works("several prompts", lambda: len(complete(prompt=["a", "b", "c"]).choices) == 3)
works("several token lists", lambda: len(complete(prompt=[[5, 6], [7]]).choices) == 2)
works("echo, max_tokens 0, prompt logprobs", scored)
works("n", lambda: len(complete(n=3, seed=1).choices) == 3)
works("best_of", lambda: len(complete(n=1, best_of=3).choices) == 1)
works("chat", lambda: chat().usage.completion_tokens)
works("chat, streamed with usage", streamed)
works("chat, several choices streamed", lambda: streamed(n=2))
works("chat, answer sent back", sent_back)
works(
    "chat, assistant content null",
    lambda: chat(messages=[*HELLO, {"role": "assistant", "content": None}, *HELLO]),
)
works("chat, tool result", lambda: chat(messages=[*HELLO, RESULT]))
works("chat, tool_choice none", lambda: chat(tools=[TOOL], tool_choice="none"))
works("chat, logprobs", lambda: chat(logprobs=True, top_logprobs=3).choices[0].logprobs.content)
works("chat, parse a pydantic model", parsed)
works("chat, many at once", lambda: asyncio.run(asked_at_once()))
refused("chat, tools", lambda: chat(tools=[TOOL]), "template shows no tools")
refused("suffix", lambda: complete(suffix="end"), "suffix is not supported by this engine")
refused(
    "image",
    lambda: chat(
        messages=[{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]
    ),
    "only text parts can",
)
refused("responses", lambda: CLIENT.responses.create(model=MODEL, input="hi"), "unknown path")
refused("embeddings", lambda: CLIENT.embeddings.create(model=MODEL, input="hi"), "unknown path")
