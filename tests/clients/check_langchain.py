"""LangChain against an engine: ``python check_langchain.py URL MODEL TOKENIZER``."""

from __future__ import annotations

import sys

import pydantic
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAI
from rows import refused, works

URL, MODEL = sys.argv[1:3]
PLACE = {"base_url": f"{URL}/v1", "api_key": "any", "model": MODEL, "max_retries": 0}
CHAT = ChatOpenAI(**PLACE, max_tokens=60, temperature=0)
TEXT = OpenAI(**PLACE, max_tokens=4)
CALL = {"name": "now", "args": {}, "id": "c1", "type": "tool_call"}


class City(pydantic.BaseModel):
    """A city."""

    name: str


@tool
def now() -> str:
    """Tell the time."""
    return "noon"


def history():
    first = CHAT.invoke("Say hello.")
    return CHAT.invoke(
        [SystemMessage("Be brief."), HumanMessage("Hi."), first, HumanMessage("Go on.")]
    )


works("chat", lambda: CHAT.invoke("Say hello.").content)
works("chat, streamed", lambda: list(CHAT.stream("Say hello.")))
works("chat, batch", lambda: len(CHAT.batch(["a", "b", "c"])) == 3)
works("chat, answer sent back", history)
works(
    "chat, n",
    lambda: (
        len(ChatOpenAI(**PLACE, n=2, max_tokens=4).generate([[HumanMessage("a")]]).generations[0])
        == 2
    ),
)
works(
    "structured output by JSON schema",
    lambda: CHAT.with_structured_output(City, method="json_schema").invoke("Name a city."),
)
works(
    "chat, tool result",
    lambda: CHAT.invoke([HumanMessage("a"), ToolMessage("noon", tool_call_id="c1")]),
)
works("completion", lambda: TEXT.invoke("One two"))
works("completion, several prompts", lambda: len(TEXT.batch(["a", "b", "c"])) == 3)
works("completion, streamed", lambda: list(TEXT.stream("One two")))
refused(
    "tools", lambda: CHAT.bind_tools([now]).invoke("What time is it?"), "template shows no tools"
)
refused(
    "chat, calls in the history",
    lambda: CHAT.invoke([HumanMessage("a"), AIMessage("", tool_calls=[CALL])]),
    "template shows no calls",
)
