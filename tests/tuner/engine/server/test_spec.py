from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from collectors.records import (
    CapturedRequest,
    DecodeStep,
    JournalPage,
    Method,
    PinnedConfig,
    Plan,
    PlanEntry,
    Setting,
    load_level_named,
)
from tests.tuner.engine.records import LOOKUP_3
from tests.tuner.engine.server.running import RunningEngine, running_engine, slowed, tiny_settings

PROMPT = "the user is the user is the user is"


@pytest.fixture
def routed(tiny_model: Path) -> Iterator[RunningEngine]:
    with running_engine(tiny_settings(tiny_model, routes=("chat", "json"))) as running:
        yield running


def ask(engine: RunningEngine, route: str | None = None, **body: object) -> str:
    headers = {} if route is None else {"x-spectuner-route": route}
    wanted = {"prompt": PROMPT, "temperature": 0, **body}
    answer = engine.http.post("/v1/completions", json=wanted, headers=headers)
    return str(answer.raise_for_status().json()["id"])


def put_plan(engine: RunningEngine, plan: Plan, **query: str) -> dict:
    answer = engine.http.put("/spec/plan", json=plan.to_dict(), params=query)
    return answer.raise_for_status().json()


def chat_plan(setting: Setting = LOOKUP_3) -> Plan:
    entry = PlanEntry(route="chat", load=load_level_named("1"), setting=setting)
    return Plan(entries=(entry,))


def test_capabilities_name_what_the_engine_can_do(routed: RunningEngine):
    told = routed.http.get("/spec/capabilities").json()
    methods = {entry["method"]: entry for entry in told["methods"]}

    assert (told["engine"], told["model"]) == ("spectuner", "tiny")
    assert set(methods) == {
        *("off", "draft_model", "prompt_lookup", "suffix", "lookahead", "self_sparse")
    }
    assert methods["draft_model"]["drafter"] == "tiny"
    assert len(methods["draft_model"]["drafter_hash"]) == 64
    assert told["rules"] == ["rejection", "token_match", "typical"]
    assert told["lossy_rules"] == ["typical"]
    assert told["grammars"] == ["json", "regex", "choice", "grammar"]
    assert methods["draft_model"]["max_tree_nodes"] == 0
    assert {name for name in methods if methods[name]["can_adapt"]} == {
        *("draft_model", "suffix", "self_sparse")
    }
    assert told["routes"] == ["other", "chat", "json"]
    assert (told["max_rows"], told["max_context_tokens"]) == (4, 256)
    assert (told["queue_limit"], told["vocab_size"]) == (64, 320)
    assert told["boot_id"] == routed.http.get("/health").json()["boot_id"]


def test_the_pinned_config_travels_whole(routed: RunningEngine):
    told = routed.http.get("/spec/capabilities").json()["pinned"]

    assert PinnedConfig.from_dict(told) == routed.loaded.pinned


def test_engines_without_given_routes_say_so(engine: RunningEngine):
    assert engine.http.get("/spec/capabilities").json()["routes"] is None


def test_a_plan_put_is_the_plan_got_and_the_next_step_follows_it(routed: RunningEngine):
    ask(routed, "chat")
    answer = put_plan(routed, chat_plan())
    ask(routed, "chat")
    ask(routed, "json")

    assert answer == routed.http.get("/spec/plan").json()
    assert answer["version"] == 1
    assert answer["digest"] == chat_plan().digest
    steps = [record for record in routed.page().records if isinstance(record, DecodeStep)]
    digests = [step.plan_digest for step in steps]
    assert digests == sorted(digests, key=[Plan().digest, chat_plan().digest].index)
    settings = {
        (group.route, step.plan_digest): group.setting.label
        for step in steps
        for group in step.groups
    }
    assert settings == {
        ("chat", Plan().digest): "off",
        ("chat", chat_plan().digest): "prompt_lookup k=3",
        ("json", chat_plan().digest): "off",
    }


def test_a_plan_can_be_put_back_as_it_was_got(routed: RunningEngine):
    before = routed.http.get("/spec/plan").json()
    put_plan(routed, chat_plan())
    after = routed.http.put("/spec/plan", json=before).raise_for_status().json()

    assert (after["digest"], after["version"]) == (before["digest"], 2)


def test_a_plan_made_for_another_is_refused_with_409(routed: RunningEngine):
    digest = routed.http.get("/spec/plan").json()["digest"]
    put_plan(routed, chat_plan(), if_digest=digest)

    answer = routed.http.put("/spec/plan", json=Plan().to_dict(), params={"if_digest": digest})

    assert answer.status_code == 409
    assert answer.json()["error"]["code"] == "plan_conflict"
    assert chat_plan().digest in answer.json()["error"]["message"]
    assert routed.http.get("/spec/plan").json()["version"] == 1


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            {"entries": [{"route": "chatt", "load": "1", "setting": {}}]},
            "unknown route 'chatt'; known routes: other, chat, json",
        ),
        (
            {"entries": [{"route": "chat", "load": "7", "setting": {}}]},
            "unknown load level '7'; use one of: 1, 2, 3-4",
        ),
        (
            {"default": {"method": "eagle", "k": 1}},
            "'eagle' has no drafter loaded; use one of: off",
        ),
        ({"default": {"method": "prompt_lookup", "k": 17}}, "k must be 1 to 16"),
        ({"default": {"method": "draft_model", "k": 1, "rule": "maybe"}}, "unknown"),
        (
            {"default": {"method": "prompt_lookup", "k": 3, "is_adaptive": True}},
            "prompt_lookup cannot be adaptive",
        ),
        (
            {"default": {"method": "draft_model", "k": 3, "is_adaptive": "yes"}},
            "is_adaptive must be true or false, got 'yes'",
        ),
        ({"defualt": {}}, "unknown plan key ['defualt']"),
        ({"entries": 5}, "entries must be a list, got 5"),
        ([], "a plan must be a JSON object, got list"),
        (
            {"entries": [{"route": "chat", "load": "1", "setting": {}}] * 2},
            "plan names route chat at load 1 twice; keep one entry",
        ),
    ],
)
def test_a_wrong_plan_is_refused_with_422_and_the_live_one_stays(
    routed: RunningEngine, body: object, message: str
):
    answer = routed.http.put("/spec/plan", json=body)

    assert answer.status_code == 422
    assert message in answer.json()["error"]["message"]
    assert routed.http.get("/spec/plan").json()["version"] == 0


def test_a_plan_that_is_not_json_is_refused_with_400(routed: RunningEngine):
    assert routed.http.put("/spec/plan", content=b"{").status_code == 400


@pytest.fixture
def slow_engine(tiny_model: Path) -> Iterator[RunningEngine]:
    with running_engine(tiny_settings(tiny_model), observers=(slowed(0.005),)) as running:
        yield running


def test_plan_changes_in_mid_answer_change_passes_and_not_the_text(slow_engine: RunningEngine):
    body = {"prompt": PROMPT, "temperature": 0, "max_tokens": 200, "ignore_eos": True}
    whole = slow_engine.http.post("/v1/completions", json=body).json()["choices"][0]["text"]
    settings = (LOOKUP_3, Setting(method=Method.DRAFT_MODEL, k=5), Setting())
    text = ""
    with slow_engine.http.stream(
        "POST", "/v1/completions", json={**body, "stream": True}
    ) as answer:
        events = (line for line in answer.iter_lines() if line.startswith("data: {"))
        for number, line in enumerate(events):
            text += json.loads(line.removeprefix("data: "))["choices"][0]["text"]
            if number % 5 == 0:
                put_plan(slow_engine, Plan(default=settings[number // 5 % 3]))

    assert text == whole
    plain, changed = slow_engine.traces()
    assert plain.completion_tokens == changed.completion_tokens == 200
    steps = [record for record in slow_engine.page().records if isinstance(record, DecodeStep)]
    used = {group.setting.method for step in steps for group in step.groups}
    assert used == {Method.OFF, Method.PROMPT_LOOKUP, Method.DRAFT_MODEL}


def test_the_journal_is_read_page_by_page_and_counts_what_the_answers_counted(
    routed: RunningEngine,
):
    bodies = [{"speculation": {"method": "draft_model", "k": 3}}, {}, {"max_tokens": 5}]
    stats = [
        routed.http.post(
            "/v1/completions", json={"prompt": PROMPT, "temperature": 0, **body}
        ).json()
        for body in bodies
    ]

    cursor, records = 0, []
    while True:
        answer = routed.http.get("/spec/steps", params={"after": cursor, "limit": 7}).json()
        page = JournalPage.from_dict(answer)
        records += page.records
        if not page.records:
            break
        cursor = page.records[-1].seq

    assert [record.seq for record in records] == list(range(1, page.last_seq + 1))
    groups = [
        group for record in records if isinstance(record, DecodeStep) for group in record.groups
    ]
    told = [answer["metrics"]["speculative_decoding"] for answer in stats]
    assert sum(group.drafted for group in groups) == sum(t["num_draft_tokens"] for t in told) > 0
    assert sum(group.accepted for group in groups) == sum(
        t["num_accepted_draft_tokens"] for t in told
    )
    delivered = sum(answer["usage"]["completion_tokens"] for answer in stats)
    assert sum(group.tokens for group in groups) == delivered - len(stats)
    assert sum(trace.completion_tokens for trace in routed.traces()) == delivered


def test_another_boots_cursor_reads_from_the_start(routed: RunningEngine):
    ask(routed)
    query = {"after": 3, "limit": 1}

    same = routed.http.get("/spec/steps", params=query).json()
    other = routed.http.get("/spec/steps", params={**query, "boot_id": "before"}).json()

    assert same["records"][0]["seq"] == 4
    assert other["records"][0]["seq"] == 1


@pytest.mark.parametrize(
    "query", [{"after": -1}, {"after": "x"}, {"limit": 0}, {"limit": 5001}, {"after": 2**64}]
)
def test_a_wrong_cursor_is_refused_by_name(routed: RunningEngine, query: dict[str, object]):
    answer = routed.http.get("/spec/steps", params=query)

    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == next(iter(query))


def test_load_tells_how_busy_the_engine_is_and_which_plan_is_live(routed: RunningEngine):
    put_plan(routed, chat_plan())
    load = routed.http.get("/spec/load").json()

    assert (load["running"], load["waiting"], load["kv_used_ratio"]) == (0, 0, 0)
    assert load["plan_digest"] == chat_plan().digest
    assert load["at"] > 1.7e9


def test_capture_is_off_until_it_is_switched_on(routed: RunningEngine):
    ask(routed, "chat")
    assert routed.http.get("/spec/captures").json()["records"] == []

    answer = routed.http.put("/spec/capture", json={"enabled": True, "private_routes": ["json"]})
    captured = ask(routed, "chat", seed=7)
    ask(routed, "json")
    page = routed.http.get("/spec/captures").json()

    assert answer.json()["private_routes"] == ["json"]
    [record] = [CapturedRequest.from_dict(entry) for entry in page["records"]]
    assert (record.request_id, record.route, record.prompt) == (captured, "chat", PROMPT)
    assert record.sampling["seed"] == 7
    assert record.completion_tokens == 16
    assert (page["first_seq"], page["last_seq"]) == (1, 1)


def test_replayed_requests_are_not_captured_again(routed: RunningEngine):
    routed.http.put("/spec/capture", json={"enabled": True})
    routed.http.post(
        "/v1/completions", json={"prompt": PROMPT}, headers={"x-spectuner-shadow": "1"}
    )

    assert routed.http.get("/spec/captures").json()["records"] == []


def test_a_private_route_that_is_unknown_is_refused_before_anything_is_captured(
    routed: RunningEngine,
):
    answer = routed.http.put("/spec/capture", json={"enabled": True, "private_routes": ["jsno"]})

    assert answer.status_code == 422
    assert "unknown route 'jsno'" in answer.json()["error"]["message"]
    assert routed.http.get("/spec/capture").json()["enabled"] is False


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"enabled": True, "share": 2}, 422),
        ({"enabled": True, "per_route": 0}, 422),
        ({"share": 1}, 400),
        ({"enabled": "yes"}, 400),
        ({"enabled": True, "shares": 1}, 400),
    ],
)
def test_wrong_capture_settings_are_refused(
    routed: RunningEngine, body: dict[str, object], status: int
):
    assert routed.http.put("/spec/capture", json=body).status_code == status
