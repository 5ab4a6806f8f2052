"""lm-eval's API models against an engine: ``python check_lmeval.py URL MODEL TOKENIZER``."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from lm_eval import simple_evaluate
from lm_eval.api.instance import Instance
from lm_eval.api.task import ConfigurableTask
from lm_eval.models.openai_completions import LocalChatCompletion, LocalCompletionsAPI
from rows import works

URL, MODEL, TOKENIZER = sys.argv[1:4]
PLACE = {
    "model": MODEL,
    "tokenizer_backend": "huggingface",
    "tokenizer": TOKENIZER,
    "max_retries": 1,
}
QUESTIONS = [
    {"question": f"{n} and {n} make", "choices": [f" {2 * n}", f" {2 * n + 1}"], "answer": 0}
    for n in range(1, 9)
]


def completions(batch_size: int) -> LocalCompletionsAPI:
    return LocalCompletionsAPI(
        **PLACE, base_url=f"{URL}/v1/completions", batch_size=batch_size, max_length=512
    )


def chat() -> LocalChatCompletion:
    return LocalChatCompletion(**PLACE, base_url=f"{URL}/v1/chat/completions", max_length=512)


def instances(kind: str, *arguments: object) -> list[Instance]:
    return [
        Instance(request_type=kind, doc={}, arguments=one, idx=number)
        for number, one in enumerate(arguments)
    ]


def likelihoods(batch_size: int) -> list[tuple[float, bool]]:
    asks = instances(
        "loglikelihood", ("One two", " three"), ("One two", " zebra"), ("The sky is", " blue")
    )
    return completions(batch_size).loglikelihood(asks)


def is_sane() -> bool:
    [three, zebra, _] = likelihoods(1)
    return three[0] > zebra[0]


def agrees_in_batches() -> bool:
    pairs = zip(likelihoods(1), likelihoods(4), strict=True)
    return all(abs(one[0] - four[0]) < 1e-3 and one[1] == four[1] for one, four in pairs)


def generated(model: LocalCompletionsAPI | LocalChatCompletion) -> bool:
    options = {"until": ["\n"], "max_gen_toks": 8, "temperature": 0}
    asks = instances("generate_until", ("One two", options), ("Red blue", options))
    return len(model.generate_until(asks)) == 2


def generated_by_chat() -> bool:
    model = chat()
    prompt = model.apply_chat_template([{"role": "user", "content": "Say hello."}])
    options = {"until": ["\n"], "max_gen_toks": 8, "temperature": 0}
    return len(model.generate_until(instances("generate_until", (prompt, options)))) == 1


def multiple_choice() -> bool:
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "sums.jsonl"
        data.write_text("".join(json.dumps(question) + "\n" for question in QUESTIONS))
        task = ConfigurableTask(
            config={
                "task": "sums",
                "dataset_path": "json",
                "dataset_kwargs": {"data_files": {"test": str(data)}},
                "test_split": "test",
                "output_type": "multiple_choice",
                "doc_to_text": "{{question}}",
                "doc_to_choice": "{{choices}}",
                "doc_to_target": "{{answer}}",
                "metric_list": [{"metric": "acc"}],
            }
        )
        results = simple_evaluate(model=completions(4), tasks=[task], bootstrap_iters=0)
    return 0 <= results["results"]["sums"]["acc,none"] <= 1


works("loglikelihood", is_sane)
works("loglikelihood, batch_size 4 as alone", agrees_in_batches)
works("multiple choice task, batch_size 4", multiple_choice)
works(
    "loglikelihood_rolling",
    lambda: completions(2).loglikelihood_rolling(
        instances("loglikelihood_rolling", ("The sky is blue today",))
    ),
)
works("generate_until, batch_size 2", lambda: generated(completions(2)))
works("generate_until by chat", generated_by_chat)
