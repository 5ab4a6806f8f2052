"""The bundled model reading facts out of text, held to a JSON schema."""

from __future__ import annotations

import json

import pytest

from collectors.records import OFF, FinishReason, Method, Setting
from tests.tuner.engine.grammars import schema
from tuner.engine.grammar import GrammarCompiler
from tuner.engine.limits import EngineLimits
from tuner.engine.loading import LoadedEngine, load_engine
from tuner.engine.request import EngineRequest, SamplingParams
from tuner.engine.settings import EngineSettings

pytestmark = pytest.mark.slow

ORDER = {
    "type": "object",
    "properties": {
        "customer": {"type": "string", "maxLength": 30},
        "article": {"type": "string", "maxLength": 30},
        "pieces": {"type": "integer", "minimum": 1, "maximum": 999},
        "is_express": {"type": "boolean"},
    },
    "required": ["customer", "article", "pieces", "is_express"],
    "additionalProperties": False,
}
TEXTS = (
    "Anna Berg wants 12 blue lamps, by express please.",
    "Send 3 garden chairs to Tom Weber. There is no hurry.",
    "Order: 40 notebooks for Lee School, normal delivery.",
    "Mrs. Okafor asks for 7 wool blankets and needs them tomorrow by express.",
)


@pytest.fixture(scope="module")
def engine() -> LoadedEngine:
    limits = EngineLimits(max_rows=8, max_context_tokens=256)
    return load_engine(EngineSettings(limits=limits))


@pytest.mark.parametrize(
    "setting",
    [
        Setting(method=Method.PROMPT_LOOKUP, k=5, lookup_min=1, lookup_max=3),
        Setting(method=Method.DRAFT_MODEL, k=4),
    ],
    ids=lambda setting: setting.method.value,
)
@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_extracted_facts_are_valid_and_greedy_ones_those_of_plain_decoding(
    engine: LoadedEngine, setting: Setting, temperature: float
) -> None:
    answers = _answers(engine, setting, temperature)

    for answer in answers:
        facts = json.loads(answer)
        assert list(facts) == list(ORDER["properties"])  # type: ignore[call-overload]
        assert 1 <= facts["pieces"] <= 999
        assert len(facts["customer"]) <= 30
    if temperature == 0:
        assert answers == _answers(engine, OFF, temperature)


def _answers(engine: LoadedEngine, setting: Setting, temperature: float) -> list[str]:
    compiler = GrammarCompiler(
        engine.codec.tokenizer.backend_tokenizer.to_str(),
        eos_ids=engine.codec.eos_ids,
        vocab_size=engine.capabilities.vocab_size,
    )
    grammar = compiler.compile(schema(ORDER), param="response_format").result()
    for number, text in enumerate(TEXTS):
        ask = f"Give customer, article, pieces and is_express of this order as JSON.\n{text}"
        prompt = engine.codec.encode_chat([{"role": "user", "content": ask}])
        sampling = SamplingParams(
            temperature=temperature, seed=number, max_tokens=120, grammar=grammar
        )
        engine.core.submit(
            EngineRequest(
                request_id=f"{number}",
                prompt_ids=tuple(prompt),
                sampling=sampling,
                route="json",
                setting=setting,
            )
        )
    texts = dict.fromkeys(map(str, range(len(TEXTS))), "")
    while engine.core.has_work:
        for delta in engine.core.step():
            texts[delta.request_id] += delta.text
            assert delta.finish_reason in (None, FinishReason.STOP)
    return list(texts.values())
