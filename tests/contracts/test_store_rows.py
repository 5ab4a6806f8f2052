"""Captures, proofs, jobs, leases, tokens and samples, on SQLite and on PostgreSQL."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from collectors.records import (
    OFF,
    CapturedRequest,
    EngineSample,
    GpuSample,
    PinnedConfig,
    Setting,
)
from policy.types import Interval
from tests.fixtures.facts import DRAFT_3
from tuner.errors import BadRequest, CursorMoved, LeaseLost, NotFound, StoreConflict
from tuner.store import (
    Store,
    access,
    audit,
    captures,
    divergences,
    evaluations,
    facts,
    jobs,
    leases,
    pinned,
    replays,
    samples,
)
from tuner.store.audit import AuditEntry
from tuner.store.divergences import ArmCounts, DivergencePair, DivergenceSummary
from tuner.store.evaluations import Evaluation
from tuner.store.facts import Cursor, Journal
from tuner.store.jobs import RunOutcome
from tuner.store.replays import ArmRun, ReplayPair, ReplayState, ReplaySummary

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
SECRET = "a-secret-of-enough-length"


def config(setting: Setting = OFF) -> PinnedConfig:
    return PinnedConfig(
        model="tiny",
        weights_hash="w",
        tokenizer_hash="t",
        dtype="float32",
        device="cpu",
        engine="spectuner 0.1.0",
        versions={"torch": "2.13.0"},
        attention_backend="sdpa",
        max_rows=4,
        setting=setting,
        sampling={"temperature": 0.0},
    )


def captured(seq: int, route: str = "chat", at: float | None = None) -> CapturedRequest:
    return CapturedRequest(
        seq=seq,
        at=float(seq) if at is None else at,
        request_id=f"cmpl-{seq}",
        route=route,
        prompt="naïve 🙂",
        prompt_ids=(1, 2, 3),
        sampling={"temperature": 0.7, "stop": ["\n"]},
        completion_tokens=9,
    )


def capture_cursor(store: Store) -> Cursor:
    with store.writing() as session:
        return facts.open_cursor(session, "bundled", "boot", NOW, Journal.CAPTURES)


def keep(store: Store, *requests: CapturedRequest) -> None:
    cursor = capture_cursor(store)
    with store.writing() as session:
        pairs = [(one, 0) for one in requests]
        captures.add(session, cursor, pairs, last_seq=requests[-1].seq, lost=0)


def test_a_capture_comes_back_as_it_was(store: Store):
    keep(store, captured(1))

    with store.reading() as session:
        (stored,) = captures.listed(session, "bundled")
    assert stored.request == captured(1)
    assert (stored.engine, stored.redactions) == ("bundled", 0)


def test_captures_are_listed_in_order_of_arrival_the_newest_of_them(store: Store):
    keep(store, captured(1, at=30.0), captured(2, at=10.0), captured(3, "story", at=20.0))

    with store.reading() as session:
        arrived = [one.request.seq for one in captures.listed(session, "bundled", limit=2)]
        stories = [one.request.seq for one in captures.listed(session, "bundled", route="story")]
        assert captures.count_by_route(session, "bundled") == {"chat": 2, "story": 1}
    assert arrived == [3, 1]
    assert stories == [3]


def test_a_page_of_captures_is_stored_once(store: Store):
    cursor = capture_cursor(store)
    with store.writing() as session:
        captures.add(session, cursor, [(captured(1), 0)], last_seq=1, lost=0)

    with pytest.raises(CursorMoved), store.writing() as session:
        captures.add(session, cursor, [(captured(1), 0)], last_seq=1, lost=0)


def test_captures_go_by_age_by_bound_and_by_route(store: Store):
    keep(store, *(captured(seq) for seq in range(1, 6)), captured(6, "private"))

    with store.writing() as session:
        assert captures.delete_before(session, 2.0) == 1
        assert captures.delete_beyond(session, "bundled", 2) == 2
        assert captures.delete_routes(session, ["private"]) == 1

    with store.reading() as session:
        assert [one.request.seq for one in captures.listed(session, "bundled")] == [4, 5]


def test_a_pinned_config_is_stored_once_under_its_digest(store: Store):
    with store.writing() as session:
        digest = pinned.remember(session, config(), NOW)
        assert pinned.remember(session, config(), NOW) == digest

    with store.reading() as session:
        assert pinned.one(session, digest) == config()
        assert pinned.listed(session) == (config(),)
        with pytest.raises(NotFound, match="feed"):
            pinned.one(session, "feed")


def run_of(tokens: int, setting: Setting = OFF) -> ArmRun:
    return ArmRun(
        tokens=tokens, seconds=2.0, ttft_s=0.1, passes=9, drafted=0, accepted=0, setting=setting
    )


def start_replay(store: Store) -> int:
    with store.writing() as session:
        return replays.start(
            session,
            engine="bundled",
            route=None,
            base=pinned.remember(session, config(), NOW),
            other=pinned.remember(session, config(DRAFT_3), NOW),
            options={"concurrency": 1},
            at=NOW,
        )


def test_a_replay_comes_back_with_its_pairs_and_summary(store: Store):
    number = start_replay(store)
    pairs = (
        ReplayPair(place=0, request_id="a", route="chat", base=run_of(10), other=run_of(20)),
        ReplayPair(
            place=1,
            request_id="b",
            route="chat",
            base=run_of(10),
            other=ArmRun(tokens=0, seconds=0.0),
            void_reason="other: no token was delivered",
        ),
    )
    summary = ReplaySummary(
        pairs=1,
        void_pairs=1,
        speedup=Interval(low=1.5, mean=2.0, high=2.5),
        base_tokens_per_pass=1.0,
    )
    with store.writing() as session:
        replays.add_pairs(session, number, pairs)
        replays.finish(session, number, state=ReplayState.DONE, summary=summary, at=NOW)

    with store.reading() as session:
        stored = replays.one(session, number)
        assert replays.pairs(session, number) == pairs
        assert replays.listed(session, other=config(DRAFT_3).digest) == (stored,)
        assert replays.listed(session, other=config().digest) == ()
    assert (stored.state, stored.summary, stored.ended_at) == (ReplayState.DONE, summary, NOW)
    assert [pair.ratio for pair in pairs] == [pytest.approx(19 / 9), None]


def test_a_replay_needs_its_configurations_on_record(store: Store):
    with pytest.raises(StoreConflict), store.writing() as session:
        replays.start(
            session, engine="bundled", route=None, base="x", other="y", options={}, at=NOW
        )


def test_a_replay_that_is_closed_stays_closed(store: Store):
    number = start_replay(store)
    with store.writing() as session:
        assert replays.fail_open(session, NOW - timedelta(hours=1), NOW) == 0
        assert replays.fail_open(session, NOW + timedelta(seconds=1), NOW) == 1
        replays.finish(session, number, state=ReplayState.DONE, summary=ReplaySummary(), at=NOW)

    with store.reading() as session:
        assert replays.one(session, number).state is ReplayState.FAILED


def test_a_divergence_report_comes_back_with_its_pairs(store: Store):
    summary = DivergenceSummary(
        tested=ArmCounts(identical=18, near_tie=1, suspicious=1),
        control=ArmCounts(identical=20),
        diverges=True,
        verdict="fail: one pair parts",
        noise_margin=1e-4,
        false_alarm_rate=0.01,
        p_value=0.24,
    )
    pairs = (
        DivergencePair(
            arm="tested",
            place=0,
            request_id="a",
            route="chat",
            kind="suspicious",
            split_at=14,
            margin=0.5,
            detail="beyond the noise",
        ),
        DivergencePair(arm="control", place=0, request_id="a", route="chat", kind="identical"),
    )
    with store.writing() as session:
        number = divergences.add(
            session,
            engine="bundled",
            plain=pinned.remember(session, config(), NOW),
            tested=pinned.remember(session, config(DRAFT_3), NOW),
            summary=summary,
            pairs=pairs,
            at=NOW,
        )

    with store.reading() as session:
        stored = divergences.one(session, number)
        assert divergences.pairs(session, number) == pairs
        assert divergences.listed(session, tested=config(DRAFT_3).digest) == (stored,)
    assert stored.summary == summary
    assert summary.tested.pairs == 20
    assert not summary.is_passing


def test_the_newest_evaluation_counts(store: Store):
    def verdict(is_passing: bool) -> Evaluation:
        return Evaluation(
            digest=config().digest,
            at=NOW,
            is_passing=is_passing,
            reasons=("slower than off",),
            divergence=None,
            replay=None,
            route="chat",
        )

    with store.writing() as session:
        pinned.remember(session, config(), NOW)
        evaluations.add(session, verdict(True))
        evaluations.add(session, verdict(False))

    with store.reading() as session:
        newest = evaluations.latest(session, config().digest, "chat")
        assert evaluations.latest(session, config().digest, "story") is None
        assert evaluations.latest(session, "feed", "chat") is None
        assert len(evaluations.listed(session)) == 2
    assert newest is not None
    assert (newest.is_passing, newest.reasons) == (False, ("slower than off",))


def open_run(store: Store, due_key: str, holder: str = "a") -> int | None:
    with store.writing() as session:
        return jobs.start(session, job="ingest", due_key=due_key, due_at=NOW, holder=holder, at=NOW)


def test_one_due_time_runs_once_whoever_asks(open_another: Callable[[], Store]):
    """Field case F19: two schedulers on one database, one due run, one row."""
    stores = [open_another() for _ in range(4)]
    gate = threading.Barrier(len(stores))
    opened: list[int | None] = []

    def ask(store: Store, holder: str) -> None:
        gate.wait()
        opened.append(open_run(store, "slot 1", holder))

    threads = [
        threading.Thread(target=ask, args=(store, str(place))) for place, store in enumerate(stores)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sum(number is not None for number in opened) == 1
    with stores[0].reading() as session:
        assert len(jobs.listed(session)) == 1


def test_a_run_is_closed_once_with_outcome_and_duration(store: Store):
    number = open_run(store, "slot 1")
    assert number is not None
    assert open_run(store, "slot 1") is None
    with store.writing() as session:
        jobs.finish(
            session, number, outcome=RunOutcome.OK, at=NOW, duration_s=0.5, detail="stored 3"
        )
        jobs.finish(
            session, number, outcome=RunOutcome.FAILED, at=NOW, duration_s=9.0, error="late"
        )

    with store.reading() as session:
        (run,) = jobs.listed(session, job="ingest")
        assert jobs.latest_by_job(session) == {"ingest": run}
    assert (run.outcome, run.duration_s, run.detail, run.error) == ("ok", 0.5, "stored 3", None)


def test_runs_that_a_dead_service_left_open_are_closed_as_interrupted(store: Store):
    open_run(store, "slot 1")
    with store.writing() as session:
        assert jobs.interrupt_open(session, NOW) == 1
        assert jobs.interrupt_open(session, NOW) == 0
        assert jobs.delete_before(session, NOW + timedelta(seconds=1)) == 1


def test_a_lease_has_one_holder_and_a_number_that_rises_when_it_changes_hands(store: Store):
    def acquire(holder: str, at: datetime) -> leases.Fence | None:
        with store.writing() as session:
            return leases.acquire(session, "leader", holder, at, 15.0)

    first = acquire("a", NOW)
    assert first is not None
    assert acquire("b", NOW + timedelta(seconds=14)) is None
    assert acquire("a", NOW + timedelta(seconds=14)) == first
    second = acquire("b", NOW + timedelta(seconds=30))
    assert second is not None
    assert second.token == first.token + 1

    with pytest.raises(LeaseLost, match="another service leads"), store.writing() as session:
        leases.require(session, first)
    with store.writing() as session:
        leases.require(session, second)


def test_whoever_lost_the_lease_cannot_write_through_a_fenced_store(store: Store):
    with store.writing() as session:
        fence = leases.acquire(session, "leader", "a", NOW, 15.0)
    assert fence is not None
    fenced = store.fenced(fence)
    with fenced.writing() as session:
        pinned.remember(session, config(), NOW)
    with store.writing() as session:
        leases.acquire(session, "leader", "b", NOW + timedelta(minutes=1), 15.0)

    with pytest.raises(LeaseLost), fenced.writing() as session:
        pinned.remember(session, config(DRAFT_3), NOW)

    with store.reading() as session:
        assert pinned.listed(session) == (config(),)


def test_a_lease_given_back_is_free_at_once(store: Store):
    with store.writing() as session:
        fence = leases.acquire(session, "leader", "a", NOW, 15.0)
        assert fence is not None
        assert leases.holder(session, "leader", NOW) == "a"
        leases.release(session, fence, NOW)
    with store.writing() as session:
        assert leases.holder(session, "leader", NOW) is None
        assert leases.acquire(session, "leader", "b", NOW, 15.0) is not None


def test_a_token_opens_until_it_ends(store: Store):
    with store.writing() as session:
        token = access.add(
            session,
            name="ann",
            role="operator",
            secret=SECRET,
            at=NOW,
            expires_at=NOW + timedelta(hours=1),
        )

    with store.reading() as session:
        assert access.by_secret(session, SECRET, NOW) == token
        assert access.by_secret(session, "another secret here", NOW) is None
        assert access.by_secret(session, SECRET, NOW + timedelta(hours=1)) is None
        assert access.listed(session) == (token,)


def test_a_revoked_token_opens_nothing_and_keeps_its_date(store: Store):
    with store.writing() as session:
        token = access.add(session, name="ann", role="admin", secret=SECRET, at=NOW)
        access.revoke(session, token.id, NOW)
        again = access.revoke(session, token.id, NOW + timedelta(days=1))
        assert again.revoked_at == NOW
        assert access.by_secret(session, SECRET, NOW) is None
        with pytest.raises(NotFound, match="no access token 99"):
            access.revoke(session, 99, NOW)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("role", "root", "use one of: viewer, operator, admin"),
        ("name", " ", "1 to 128 characters"),
        ("secret", "short", "at least 16 characters"),
    ],
)
def test_a_token_that_means_nothing_is_refused(store: Store, field: str, value: str, message: str):
    given = {"name": "ann", "role": "viewer", "secret": SECRET, field: value}

    with pytest.raises(BadRequest, match=message), store.writing() as session:
        access.add(session, at=NOW, **given)


def test_a_secret_is_never_stored(store: Store):
    with store.writing() as session:
        access.add(session, name="ann", role="viewer", secret=SECRET, at=NOW)
        rows = session.connection().exec_driver_sql("SELECT * FROM access_tokens").fetchall()

    assert SECRET not in repr(rows)
    assert access.hash_of(SECRET) in repr(rows)


def test_the_audit_is_newest_first(store: Store):
    entries = [
        AuditEntry(
            at=NOW, who="ann", action="approve", target=f"recommendation {n}", outcome="done"
        )
        for n in (1, 2)
    ]
    with store.writing() as session:
        for entry in entries:
            audit.add(session, entry)

    with store.reading() as session:
        assert audit.listed(session) == tuple(reversed(entries))


def test_the_newest_samples_of_engine_and_devices_come_back(store: Store):
    def engine_at(at: float) -> EngineSample:
        return EngineSample(
            at=at,
            engine="bundled",
            boot_id="b",
            running=3,
            waiting=1,
            kv_used_ratio=0.5,
            plan_digest="d",
        )

    def device_at(at: float) -> GpuSample:
        return GpuSample(
            at=at,
            device="cpu",
            name="x",
            busy_ratio=0.9,
            memory_used_bytes=2**40,
            memory_total_bytes=2**41,
        )

    with store.writing() as session:
        for at in (1.0, 2.0):
            samples.add_engine(session, engine_at(at))
            samples.add_device(session, device_at(at))

    with store.writing() as session:
        assert samples.latest_engine(session, "bundled") == engine_at(2.0)
        assert samples.latest_engine(session, "other") is None
        assert samples.latest_devices(session, 0.0) == (device_at(2.0),)
        assert samples.latest_devices(session, 3.0) == ()
        assert samples.delete_before(session, 2.0) == 2
