"""The bundled engine's protocol, read from a real engine and from recorded answers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import httpx
import pytest

from collectors.base import MethodCapability
from collectors.bundled import BundledCollector
from collectors.errors import InvalidRecord, SourceRefused, SourceUnreachable
from collectors.http import EngineAddress
from collectors.records import OFF, DecodeStep, Method, Plan, RequestTrace, Setting
from tests.fixtures.facts import DRAFT_3
from tests.fixtures.player import Player, playing
from tests.tuner.engine.server.running import RunningEngine, running_engine, tiny_settings
from tests.tuner.engine.server.tiny_model import write_tiny_model


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningEngine]:
    model = write_tiny_model(tmp_path_factory.mktemp("tiny") / "tiny")
    with running_engine(tiny_settings(model), api_key="key") as running:
        yield running


@pytest.fixture
def player() -> Iterator[Player]:
    with playing(Player()) as started:
        yield started


@pytest.fixture
def client() -> Iterator[httpx.Client]:
    with httpx.Client(timeout=60, trust_env=False) as opened:
        yield opened


def collector(url: str, client: httpx.Client, api_key: str = "key") -> BundledCollector:
    address = EngineAddress(base_url=url, client=client, api_key=api_key)
    return BundledCollector(engine="bundled", address=address)


def test_a_real_engine_is_read_whole(engine: RunningEngine, client: httpx.Client):
    source = collector(engine.url, client)
    engine.http.put("/spec/capture", json={"enabled": True}).raise_for_status()
    body = {"prompt": "the user is", "max_tokens": 8, "temperature": 0}
    engine.http.post("/v1/completions", json=body).raise_for_status()

    page = source.steps(0, 5000)
    capabilities = source.capabilities()

    assert {type(record) for record in page.records} == {DecodeStep, RequestTrace}
    assert source.steps(page.last_seq, 10, page.boot_id).records == ()
    assert source.steps(page.last_seq, 10, "another boot").records[0].seq == 1
    assert source.load().boot_id == page.boot_id == capabilities.boot_id
    assert source.plan().digest == Plan().digest
    (captured,) = source.captures(0, 5000).records
    assert captured.prompt == "the user is"
    assert capabilities.pinned.setting == OFF
    assert capabilities.routes is None
    assert Method.DRAFT_MODEL in {one.method for one in capabilities.methods}


def test_pinned_configs_differ_by_setting_and_drafter(engine: RunningEngine, client: httpx.Client):
    capabilities = collector(engine.url, client).capabilities()
    plain, drafted = capabilities.pinned_at(OFF), capabilities.pinned_at(DRAFT_3)

    assert plain.digest == capabilities.pinned.digest
    assert drafted.digest != plain.digest
    assert drafted.drafter_hash
    assert plain.drafter_hash == ""


@pytest.mark.parametrize(
    ("setting", "reason"),
    [
        (OFF, None),
        (DRAFT_3, None),
        (Setting(method=Method.DRAFT_MODEL, k=3, drafter="nobody"), "drafter 'nobody'"),
        (Setting(method=Method.EAGLE, k=3), "has no eagle; it has draft_model"),
    ],
)
def test_what_the_engine_cannot_run_is_said_with_a_reason(
    engine: RunningEngine, client: httpx.Client, setting: Setting, reason: str | None
):
    found = collector(engine.url, client).capabilities().unsupported_reason(setting)

    assert found is None if reason is None else reason in str(found)


def test_a_wrong_key_names_the_setting_to_change(engine: RunningEngine, client: httpx.Client):
    with pytest.raises(SourceRefused, match="SPECTUNER_ENGINE_API_KEY"):
        collector(engine.url, client, "wrong").load()


def test_nobody_at_the_address_can_be_tried_again(client: httpx.Client):
    with pytest.raises(SourceUnreachable, match=r"127\.0\.0\.1:9/spec/load did not answer"):
        collector("http://127.0.0.1:9", client).load()


@pytest.mark.parametrize(
    ("answer", "kind", "message"),
    [
        ((503, {"error": {"message": "loading"}}), SourceUnreachable, "answered 503: loading"),
        ((500, b"<html>"), SourceUnreachable, "answered 500"),
        ((404, {"error": {"message": "no path"}}), SourceRefused, "answered 404: no path"),
        ((200, b"hello"), SourceRefused, "is it a spectuner engine?"),
        ((200, [1, 2]), SourceRefused, "is it a spectuner engine?"),
    ],
)
def test_answers_that_are_none_are_named(
    player: Player, client: httpx.Client, answer: object, kind: type[Exception], message: str
):
    player.overrides["/spec/load"] = answer  # type: ignore[assignment]

    with pytest.raises(kind, match=message.replace("?", r"\?")) as caught:
        collector(player.url, client).load()

    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("verify_s", float("nan"), "verify_s must be a finite number"),
        ("running", "3", "running must be an integer"),
        ("seq", 7, "has a gap"),
        ("groups", [{"route": "chat"}], "setting must be a JSON object"),
        ("kind", "gossip", "unknown journal record kind 'gossip'"),
    ],
)
def test_an_invalid_record_is_named_by_its_number(
    player: Player, client: httpx.Client, field: str, value: object, message: str
):
    player.write(3)
    page = player.journal.page(0, 10).to_dict()
    page["records"][1][field] = value  # type: ignore[index]
    player.overrides["/spec/steps"] = (200, page)

    with pytest.raises(InvalidRecord, match=message) as caught:
        collector(player.url, client).steps(0, 10)

    if field != "seq":
        assert "record 2 is invalid" in str(caught.value)


def test_captures_out_of_order_are_refused(player: Player, client: httpx.Client):
    record = {"seq": 2, "at": 1.0, "request_id": "a", "route": "chat", "prompt": "p"}
    page = {"boot_id": "b", "first_seq": 1, "last_seq": 2, "records": [record, record]}
    player.overrides["/spec/captures"] = (200, page)

    with pytest.raises(InvalidRecord, match="out of order"):
        collector(player.url, client).captures(0, 10)


@pytest.mark.parametrize("can_adapt", [True, False])
def test_the_adaptive_mode_needs_an_engine_that_says_it_has_it(
    engine: RunningEngine, client: httpx.Client, can_adapt: bool
):
    known = collector(engine.url, client).capabilities()
    eagle = MethodCapability(method=Method.EAGLE, max_k=8, can_adapt=can_adapt)
    adaptive = Setting(method=Method.EAGLE, k=5, is_adaptive=True)

    found = replace(known, methods=(eagle,)).unsupported_reason(adaptive)

    assert (found is None) == can_adapt


@pytest.mark.parametrize(("max_tree_nodes", "is_refused"), [(0, True), (8, True), (16, False)])
def test_a_tree_needs_an_engine_that_says_it_drafts_them_so_large(
    engine: RunningEngine, client: httpx.Client, max_tree_nodes: int, is_refused: bool
):
    known = collector(engine.url, client).capabilities()
    eagle = MethodCapability(method=Method.EAGLE, max_k=8, max_tree_nodes=max_tree_nodes)
    tree = Setting(method=Method.EAGLE, k=4, tree_nodes=16, tree_width=4)

    found = replace(known, methods=(eagle,)).unsupported_reason(tree)

    assert (found is not None) == is_refused
