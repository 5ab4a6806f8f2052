import json
import threading

import httpx

from collectors.http import EngineAddress
from collectors.records import OFF, CapturedRequest
from tests.fixtures.player import Player
from tuner.store.captures import StoredCapture
from tuner.workflows.shadow import ask, mismatch_reason, shadow_body


def test_a_replayed_request_is_held_to_the_grammar_it_had() -> None:
    shape = {"json": {"type": "object", "required": ["name"]}}
    request = CapturedRequest(
        seq=1,
        at=1.0,
        request_id="r",
        route="json",
        prompt="Give JSON.",
        prompt_ids=(1, 2),
        sampling={"temperature": 0.5, "structured_outputs": shape, "seed": None},
    )

    stored = StoredCapture(id=1, engine="bundled", redactions=0, request=request)
    body = shadow_body(stored, OFF, {"temperature": 0})

    assert body["structured_outputs"] == shape
    assert body["temperature"] == 0
    assert "seed" not in body


def asked(player: Player, body: bytes) -> str | None:
    request = CapturedRequest(
        seq=1, at=1.0, request_id="r", route="chat", prompt="Hi.", prompt_ids=(1, 2)
    )
    stored = StoredCapture(id=1, engine="bundled", redactions=0, request=request)
    player.overrides["/v1/completions"] = (200, body)
    with httpx.Client(trust_env=False) as client:
        address = EngineAddress(base_url=player.url, client=client)
        return mismatch_reason(OFF, ask(address, stored, OFF, {}, stopping=threading.Event()))


def streamed(*events: object, end: str) -> bytes:
    return "".join(f"data: {json.dumps(one, ensure_ascii=False)}{end}" for one in events).encode()


def test_a_line_separator_inside_a_text_ends_no_line(player: Player):
    """Field case F26."""
    choice = {"token_ids": [5, 6], "text": "one\u2028two\u0085three", "finish_reason": "stop"}
    metrics = {"spectuner": {"setting": OFF.to_dict(), "passes": 1}}

    for end in ("\n\n", "\r\n\r\n", "\n"):
        body = streamed({"choices": [choice]}, {"choices": [], "metrics": metrics}, end=end)
        assert asked(player, body) is None


def test_a_stream_without_a_finish_reason_is_an_error(player: Player):
    """Field case F25."""
    choice = {"token_ids": [5, 6], "text": "one two"}
    metrics = {"spectuner": {"setting": OFF.to_dict(), "passes": 1}}
    body = streamed({"choices": [choice]}, {"choices": [], "metrics": metrics}, end="\n\n")

    reason = asked(player, body)

    assert reason is not None
    assert "without a finish reason" in reason
