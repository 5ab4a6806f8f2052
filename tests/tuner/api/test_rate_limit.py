from __future__ import annotations

from tuner.api.rate_limit import MAX_ADDRESSES, FailureLimit


def test_an_address_waits_until_its_oldest_failure_is_a_window_old() -> None:
    now_s = [0.0]
    limit = FailureLimit(limit=3, window_s=60, monotonic_s=lambda: now_s[0])
    for moment in (0.0, 10.0, 20.0):
        assert limit.wait_s("a") == 0
        now_s[0] = moment
        limit.note_failure("a")
    assert limit.wait_s("a") == 40
    assert limit.wait_s("b") == 0
    now_s[0] = 60.0
    assert limit.wait_s("a") == 0
    limit.note_failure("a")
    assert limit.wait_s("a") == 10


def test_the_number_of_addresses_remembered_is_bounded() -> None:
    limit = FailureLimit(limit=1, window_s=60, monotonic_s=lambda: 0.0)
    for number in range(MAX_ADDRESSES + 1):
        limit.note_failure(str(number))
    assert limit.wait_s("0") == 0
    assert limit.wait_s(str(MAX_ADDRESSES)) > 0
