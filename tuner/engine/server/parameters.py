"""Request parameters that OpenAI or vLLM define and this engine does not implement.

One that cannot change the output is ignored. One that could is refused by name, unless its value
asks for what happens anyway. Anything else is a typing mistake and is refused too.
"""

from __future__ import annotations

from collections.abc import Mapping

from tuner.engine.errors import InvalidRequest

IGNORED = frozenset(
    {
        "metadata",
        "prompt_cache_key",
        "prompt_cache_retention",
        "safety_identifier",
        "service_tier",
        "store",
        "user",
    }
)
"""Bookkeeping of OpenAI's service."""

ONLY_VALUES: Mapping[str, tuple[object, ...]] = {
    "add_generation_prompt": (True,),
    "add_special_tokens": (),
    "audio": (),
    "best_of": (1,),
    "continue_final_message": (False,),
    "echo": (False,),
    "function_call": ("none",),
    "functions": ([],),
    "include_stop_str_in_output": (False,),
    "modalities": (["text"],),
    "parallel_tool_calls": (True, False),
    "prediction": (),
    "prompt_logprobs": (),
    "reasoning_effort": (),
    "skip_special_tokens": (True,),
    "spaces_between_special_tokens": (True,),
    "suffix": ("",),
    "tool_choice": ("none",),
    "tools": ([],),
    "truncate_prompt_tokens": (),
    "use_beam_search": (False,),
    "verbosity": ("medium",),
    "web_search_options": (),
}
"""Parameters that could change the output, with the values that do not; null always is one."""


def require_servable(extra: Mapping[str, object]) -> None:
    """Check the parameters that the schema does not know.

    Raises:
        InvalidRequest: a parameter is unknown, or would change the output.
    """
    for name, value in extra.items():
        if name in IGNORED or (name in ONLY_VALUES and value is None):
            continue
        if name not in ONLY_VALUES:
            raise InvalidRequest(f"unknown parameter {name[:60]!r}; remove it", param=name[:60])
        if not any(_is_same(value, allowed) for allowed in ONLY_VALUES[name]):
            raise InvalidRequest(_refusal(name), param=name)


def _is_same(value: object, allowed: object) -> bool:
    return type(value) is type(allowed) and value == allowed


def _refusal(name: str) -> str:
    allowed = " or ".join(repr(value) for value in ONLY_VALUES[name])
    fix = f"leave it out or send {allowed}" if allowed else "leave it out"
    return f"{name} is not supported by this engine; {fix}"
