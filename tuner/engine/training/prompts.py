"""A seeded generator of training prompts for the draft model.

Called by selfgen.py. The same seed always gives the same prompts; none of them stands in the demo's
traffic file, which is kept for measuring (a test compares the two).
"""

from __future__ import annotations

import json
import random
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

from tuner.engine.training.errors import MaterialError
from tuner.engine.training.grammar import Grammar
from tuner.engine.training.material import stdlib_functions, stdlib_passages

PHRASES_PATH = Path(__file__).with_name("phrases.toml")
TASKS_PATH = Path(__file__).with_name("tasks.toml")
KIND_WEIGHTS = {
    "code_edit": 0.10,
    "rag_answer": 0.10,
    "json_extract": 0.06,
    "chat": 0.08,
    "story": 0.06,
    "general": 0.03,
    "translate": 0.10,
    "summarise": 0.10,
    "question": 0.09,
    "math": 0.08,
    "read": 0.08,
    "writing": 0.05,
    "explain": 0.05,
    "coding": 0.04,
    "advice": 0.03,
    "reasoning": 0.03,
    "extract": 0.02,
    "roleplay": 0.02,
}
_TEMPERATURES = {
    "code_edit": (0.0, 0.0, 0.0, 0.7),
    "rag_answer": (0.0, 0.2, 0.2, 0.7),
    "json_extract": (0.0, 0.0, 0.0, 0.7),
    "chat": (0.0, 0.7, 0.7, 0.7),
    "story": (0.0, 0.9, 0.9, 0.9),
    "general": (0.0, 0.7),
}
_TASK_TEMPERATURES = (0.0, 0.0, 0.7)
Phrases: TypeAlias = dict[str, list[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Record:
    """A kind of JSON record: its fields, where known their values, and texts that hold them."""

    fields: list[str]
    values: list[str]
    texts: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingPrompt:
    """One prompt and how its answer is to be sampled.

    Attributes:
        kind: one of KIND_WEIGHTS; the first five resemble the demo's routes.
        text: what the user says.
        temperature: sampling temperature of the answer; 0 is greedy.
        top_p: nucleus of the answer's sampling, 1 keeps all.
    """

    kind: str
    text: str
    temperature: float
    top_p: float


def training_prompts(seed: int, kinds: dict[str, float] | None = None) -> Iterator[TrainingPrompt]:
    """Yield training prompts without end, all different, the same for the same seed.

    Args:
        seed: start of the random sequence.
        kinds: weight of each kind, by default KIND_WEIGHTS.

    Raises:
        MaterialError: a kind is unknown, or the phrases file is malformed.
    """
    weights = kinds or KIND_WEIGHTS
    weights_of(weights)
    rng = random.Random(seed)
    seen: set[str] = set()
    while True:
        kind = rng.choices(list(weights), list(weights.values()))[0]
        text = _WRITERS[kind](rng)
        if text in seen:
            continue
        seen.add(text)
        temperature = rng.choice(_TEMPERATURES.get(kind, _TASK_TEMPERATURES))
        top_p = 0.95 if kind == "story" else 0.9
        yield TrainingPrompt(kind=kind, text=text, temperature=temperature, top_p=top_p)


def weights_of(kinds: Iterable[str]) -> dict[str, float]:
    """Return the weights of some kinds.

    Raises:
        MaterialError: a kind is unknown.
    """
    chosen = list(kinds)
    unknown = sorted(set(chosen) - set(KIND_WEIGHTS))
    if unknown:
        raise MaterialError(f"unknown kind {unknown[0]!r}: use some of {', '.join(KIND_WEIGHTS)}")
    return {kind: KIND_WEIGHTS[kind] for kind in chosen}


def phrases_of(section: str) -> Phrases:
    """Return the word lists of one section of phrases.toml.

    Raises:
        MaterialError: the file has no such section.
    """
    table = _document(PHRASES_PATH).get(section)
    if not isinstance(table, dict):
        raise MaterialError(f"{PHRASES_PATH.name} has no section [{section}]: add it")
    lists = {key: value for key, value in table.items() if key != "records"}
    return {key: [str(item) for item in value] for key, value in lists.items()}


@cache
def _document(path: Path) -> dict[str, Any]:
    return tomllib.loads(path.read_text(encoding="utf-8"))


@cache
def _json_records() -> tuple[_Record, ...]:
    section = _document(PHRASES_PATH)["json_extract"]
    return tuple(
        _Record(
            fields=list(record["fields"]),
            values=list(record.get("values", [])),
            texts=list(record["texts"]),
        )
        for record in section["records"]
    )


def _write_code_edit(rng: random.Random) -> str:
    phrases = phrases_of("code_edit")
    is_from_library = rng.random() < 0.55
    code = rng.choice(stdlib_functions()) if is_from_library else _made_up_function(rng, phrases)
    names = sorted(set(re.findall(r"\b[a-z_]{2,}\b(?=\s*[=,.\[)])", code))) or ["value"]
    match = re.search(r"def (\w+)|class (\w+)", code)
    instruction = rng.choice(phrases["instructions"]).format(
        name=rng.choice(names),
        new_name=rng.choice(phrases["new_names"]),
        func=(match.group(1) or match.group(2)) if match else "the function",
        new_func=rng.choice(phrases["new_funcs"]),
        value=rng.choice(phrases["values"]),
        error=rng.choice(phrases["errors"]),
    )
    return rng.choice(phrases["frames"]).format(instruction=instruction, code=code)


def _made_up_function(rng: random.Random, phrases: Phrases) -> str:
    first, second = rng.sample(phrases["nouns"], 2)
    return rng.choice(phrases["functions"]).format(
        n=first,
        N=first.capitalize(),
        m=second,
        a=rng.choice(phrases["attributes"]),
        v=rng.choice([0, 1, 2, 3, 5, 8, 10, 12, 20, 50, 64, 100, 255]),
    )


def _write_rag_answer(rng: random.Random) -> str:
    phrases = phrases_of("rag_answer")
    if rng.random() < 0.5:
        passage = rng.choice(stdlib_passages())
        question = rng.choice(phrases["open_questions"]).format(term=_term_in(passage, rng))
    else:
        passage, question = _help_desk_page(rng, phrases)
    return rng.choice(phrases["frames"]).format(passage=passage, question=question)


def _term_in(passage: str, rng: random.Random) -> str:
    words = [word.strip(".,:;()'\"`*") for word in passage.split()]
    start = rng.randrange(max(1, len(words) - 2))
    long_words = [word for word in words[start:] if len(word) > 5] or ["it"]
    return long_words[0]


def _help_desk_page(rng: random.Random, phrases: Phrases) -> tuple[str, str]:
    """Write a page of facts about one product and the question that one of them answers."""
    product = rng.choice(phrases["products"])
    sentences, questions = [], []
    for fact in rng.sample(phrases["facts"], rng.randint(3, 6)):
        sentence, question = fact.format(**_fact_words(rng, phrases, product)).split(" | ")
        sentences.append(sentence[0].upper() + sentence[1:])
        questions.append(question)
    return " ".join(sentences), rng.choice(questions)


def _fact_words(rng: random.Random, phrases: Phrases, product: str) -> dict[str, str | int]:
    lists = {
        "thing": "things",
        "plan": "plans",
        "place": "places",
        "action": "actions",
        "role": "roles",
        "message": "messages",
        "format": "formats",
        "period": "periods",
    }
    words: dict[str, str | int] = {key: rng.choice(phrases[name]) for key, name in lists.items()}
    return {
        **words,
        "P": product,
        "n": rng.choice([2, 3, 5, 7, 10, 14, 15, 20, 24, 30, 45, 60, 90, 100, 250, 365]),
    }


def _write_json_extract(rng: random.Random) -> str:
    phrases = phrases_of("json_extract")
    record = rng.choice(_json_records())
    if record.values and rng.random() < 0.7:
        return _json_by_example(rng, phrases, record)
    return rng.choice(phrases["frames"]).format(
        fields=", ".join(record.fields),
        skeleton=json.dumps(dict.fromkeys(record.fields, ""), indent=2),
        text=rng.choice(record.texts).format(**_record_words(rng, phrases)),
    )


def _json_by_example(rng: random.Random, phrases: Phrases, record: _Record) -> str:
    """Write a prompt that shows one text with its JSON and asks for the JSON of another."""
    words = _record_words(rng, phrases)
    values = [value.format(**words) for value in record.values]
    answer = dict(zip(record.fields, values, strict=True))
    numbers = {key: int(value) for key, value in answer.items() if value.isdigit()}
    texts = rng.sample(record.texts, 2)
    example = texts[0].format(**words)
    asked = texts[1].format(**_record_words(rng, phrases))
    shown = json.dumps({**answer, **numbers})
    return (
        f"{rng.choice(phrases['heads'])}\n\nText: {example}\nJSON: {shown}\n\nText: {asked}\nJSON:"
    )


def _record_words(rng: random.Random, phrases: Phrases) -> dict[str, str | int]:
    first, last = rng.choice(phrases["first_names"]), rng.choice(phrases["last_names"])
    city, city2 = rng.sample(phrases["cities"], 2)
    mail_host = rng.choice(["mail", "post", "inbox", "work"])
    return {
        "first": first,
        "last": last,
        "mail": f"{first.lower()}.{last.lower()}@{mail_host}.example",
        "phone": f"555-{rng.randint(1000, 9999)}",
        "id": f"{rng.choice('ABCDKMPRTX')}{rng.randint(100, 99999)}",
        "city": city,
        "city2": city2,
        "good": rng.choice(phrases["goods"]),
        "company": rng.choice(phrases["companies"]),
        "job": rng.choice(phrases["jobs"]),
        "issue": rng.choice(phrases["issues"]),
        "priority": rng.choice(phrases["priorities"]),
        "month": rng.choice(phrases["months"]),
        "weekday": rng.choice(phrases["weekdays"]),
        "color": rng.choice(phrases["colors"]),
        "service": rng.choice(phrases["services"]),
        "level": rng.choice(phrases["levels"]),
        "state": rng.choice(phrases["states"]),
        "metric": rng.choice(phrases["metrics"]),
        "day": rng.randint(1, 28),
        "hour": rng.randint(8, 20),
        "n": rng.randint(1, 900),
        "few": rng.randint(2, 6),
        "price": f"{rng.randint(1, 400)}.{rng.choice(['00', '50', '95', '99', '25'])}",
        "code": rng.choice([200, 301, 400, 403, 404, 409, 422, 429, 500, 502, 503, 504]),
    }


def _write_chat(rng: random.Random) -> str:
    phrases = phrases_of("chat")
    if rng.random() < 0.5:
        details = rng.sample(phrases["details"], rng.randint(0, 2))
        return " ".join([rng.choice(phrases["contexts"]), *details, rng.choice(phrases["asks"])])
    concept, concept2 = rng.sample(phrases["concepts"], 2)
    question = rng.choice(phrases["questions"]).format(
        task=rng.choice(phrases["tasks"]),
        concept=concept,
        concept2=concept2,
        person=rng.choice(phrases["persons"]),
        matter=rng.choice(phrases["matters"]),
    )
    return rng.choice(phrases["frames"]).format(q=question)


def _write_story(rng: random.Random) -> str:
    phrases = phrases_of("story")
    hero, hero2 = rng.sample(phrases["heroes"], 2)
    wishes = rng.sample(phrases["twists"] + phrases["moods"], rng.choice([0, 1, 2, 3]))
    start = rng.choice(phrases["frames"]).format(
        hero=hero,
        hero2=hero2,
        plot=rng.choice(phrases["plots"]),
        setting=rng.choice(phrases["settings"]),
        weather=rng.choice(phrases["weathers"]),
        time=rng.choice(phrases["times"]),
    )
    return " ".join([start, *wishes])


def _write_general(rng: random.Random) -> str:
    phrases = phrases_of("general")
    verb = rng.choice(phrases["verbs"])
    return rng.choice(phrases["frames"]).format(
        verb=verb, lower=verb[0].lower() + verb[1:], topic=rng.choice(phrases["topics"])
    )


@cache
def _task_grammar(kind: str) -> Grammar:
    """Return the lists of one section of tasks.toml, and what all sections share."""
    document = _document(TASKS_PATH)
    sources = {"passage": lambda rng: rng.choice(stdlib_passages())}
    return Grammar({**document["words"], **document[kind]}, sources)


def _task_writer(kind: str) -> Callable[[random.Random], str]:
    return lambda rng: _task_grammar(kind).write(rng, "prompt")


_WRITERS: dict[str, Callable[[random.Random], str]] = {
    "code_edit": _write_code_edit,
    "rag_answer": _write_rag_answer,
    "json_extract": _write_json_extract,
    "chat": _write_chat,
    "story": _write_story,
    "general": _write_general,
    **{kind: _task_writer(kind) for kind in KIND_WEIGHTS if kind not in _TEMPERATURES},
}
