import json
import re
from pathlib import Path

import pytest

from tuner.demo.errors import InvalidTraffic
from tuner.demo.traffic import bundled_traffic, read_traffic
from tuner.engine.server.formats import ResponseFormat

GOOD = {"route": "chat", "messages": [{"role": "user", "content": "Hi"}], "sampling": {}}


def refusal(tmp_path: Path, text: str) -> str:
    file = tmp_path / "traffic.jsonl"
    file.write_text(text)
    with pytest.raises(InvalidTraffic) as refused:
        read_traffic(file)
    assert len(str(refused.value).splitlines()) == 1
    return str(refused.value)


def test_the_bundled_traffic_has_five_routes_each_with_its_own_sampling() -> None:
    prompts = read_traffic(bundled_traffic())
    routes = {prompt.route for prompt in prompts}
    temperatures = {prompt.route: prompt.sampling["temperature"] for prompt in prompts}

    assert len(routes) >= 5
    assert len(set(temperatures.values())) >= 3
    assert all("max_tokens" in prompt.sampling for prompt in prompts)
    assert all(sum(prompt.route == route for prompt in prompts) >= 10 for route in routes)


def test_the_route_that_reads_facts_is_held_to_the_keys_of_its_example() -> None:
    extracts = [one for one in read_traffic(bundled_traffic()) if one.route == "json_extract"]

    for prompt in extracts:
        example = json.loads(re.findall(r"JSON: (\{.*?\})", prompt.messages[-1]["content"])[0])
        shape = ResponseFormat.model_validate(prompt.sampling["response_format"])
        assert shape.json_schema is not None
        assert shape.json_schema.body["required"] == list(example)


def test_empty_lines_are_skipped_and_sampling_may_be_left_out(tmp_path: Path) -> None:
    file = tmp_path / "traffic.jsonl"
    bare = {name: GOOD[name] for name in ("route", "messages")}
    file.write_text(f"\n{json.dumps(bare)}\n\n{json.dumps(GOOD)}\n")

    assert [prompt.sampling for prompt in read_traffic(file)] == [{}, {}]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"route": "two words"}, "'two words' is not a name"),
        ({"route": 3}, "route must be a string, got 3"),
        ({"messages": []}, "non-empty list"),
        ({"messages": [{"role": "user"}]}, "needs role and content"),
        ({"sampling": [1]}, "sampling must be an object"),
        ({"sampling": {"stream": False}}, "cannot set 'stream'"),
        ({"extra": 1}, "unknown key 'extra'"),
    ],
)
def test_a_bad_line_is_named_with_its_number(
    tmp_path: Path, change: dict[str, object], words: str
) -> None:
    said = refusal(tmp_path, f"{json.dumps(GOOD)}\n{json.dumps({**GOOD, **change})}\n")

    assert "line 2" in said
    assert words in said


@pytest.mark.parametrize("line", ["{", "[1]", "3"])
def test_a_line_that_is_no_object_is_named(tmp_path: Path, line: str) -> None:
    assert "line 1" in refusal(tmp_path, line)


def test_an_empty_file_and_a_missing_one_are_refused(tmp_path: Path) -> None:
    assert "holds no prompt" in refusal(tmp_path, "\n\n")
    with pytest.raises(InvalidTraffic, match="cannot be read"):
        read_traffic(tmp_path / "absent.jsonl")
