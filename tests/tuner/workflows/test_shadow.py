from collectors.records import OFF, CapturedRequest
from tuner.store.captures import StoredCapture
from tuner.workflows.shadow import shadow_body


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
