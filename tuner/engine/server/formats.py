"""What an answer must look like: OpenAI's ``response_format`` and vLLM's ``structured_outputs``.

Both become one `GrammarSource`; the grammar itself is checked when it is compiled.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from tuner.engine.errors import InvalidRequest
from tuner.engine.grammar import GrammarKind, GrammarSource
from tuner.engine.server.strict import Strict

_ANY_OBJECT: Mapping[str, object] = {"type": "object"}


def _parsed_schema(value: object) -> object:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError as error:
            raise ValueError(f"is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise ValueError("must be a JSON schema that is an object")
    return value


Schema = Annotated[dict[str, object], BeforeValidator(_parsed_schema)]


class JsonSchema(Strict):
    """OpenAI's wrapper of a JSON schema; the schema is always enforced, strict or not."""

    name: str = Field(max_length=64)
    description: str | None = None
    body: Schema = Field(alias="schema")
    strict: bool | None = None


class ResponseFormat(Strict):
    """OpenAI's ``response_format``."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None

    @model_validator(mode="after")
    def _schema_belongs_to_its_type(self) -> Self:
        if (self.json_schema is not None) != (self.type == "json_schema"):
            raise ValueError("needs json_schema exactly where type is 'json_schema'")
        return self

    def source(self) -> GrammarSource | None:
        """Return the grammar; None for free text."""
        if self.type == "text":
            return None
        return _of_schema(_ANY_OBJECT if self.json_schema is None else self.json_schema.body)


class StructuredOutputs(Strict):
    """vLLM's ``structured_outputs``: one of its ways to say what an answer must be."""

    schema_: Schema | None = Field(default=None, alias="json")
    json_object: Literal[True] | None = None
    regex: str | None = None
    choice: list[str] | None = Field(default=None, min_length=1)
    grammar: str | None = None

    @model_validator(mode="after")
    def _says_one_thing(self) -> Self:
        ways = (self.schema_, self.json_object, self.regex, self.choice, self.grammar)
        if sum(way is not None for way in ways) != 1:
            raise ValueError("needs exactly one of json, json_object, regex, choice and grammar")
        return self

    def source(self) -> GrammarSource | None:
        """Return the grammar; None where nothing is said."""
        if self.regex is not None:
            return GrammarSource(kind=GrammarKind.REGEX, text=self.regex)
        if self.choice is not None:
            text = json.dumps(self.choice, ensure_ascii=False)
            return GrammarSource(kind=GrammarKind.CHOICE, text=text)
        if self.grammar is not None:
            return GrammarSource(kind=GrammarKind.GRAMMAR, text=self.grammar)
        schema = _ANY_OBJECT if self.json_object else self.schema_
        return None if schema is None else _of_schema(schema)


def wanted_grammar(
    response_format: ResponseFormat | None, structured: StructuredOutputs | None
) -> tuple[str, GrammarSource] | None:
    """Return what an answer must be and the parameter that says so; None for free text.

    Raises:
        InvalidRequest: both say it.
    """
    formatted = None if response_format is None else response_format.source()
    shaped = None if structured is None else structured.source()
    if formatted is not None and shaped is not None:
        raise InvalidRequest(
            "response_format and structured_outputs both shape the answer; send one",
            param="structured_outputs",
        )
    if formatted is not None:
        return "response_format", formatted
    return None if shaped is None else ("structured_outputs", shaped)


def _of_schema(schema: Mapping[str, object]) -> GrammarSource:
    text = json.dumps(schema, ensure_ascii=False, separators=(",", ":"))
    return GrammarSource(kind=GrammarKind.JSON, text=text)
