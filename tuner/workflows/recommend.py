"""Ask the policy what each route should run, and store what it says."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from sqlalchemy.orm import Session

from collectors.records import Plan, Route
from policy.acceptance_features import checked
from policy.evidence_amount import amount_of
from policy.materiality import without_refused
from policy.recommend import RecommendOptions
from policy.recommend import recommend as advise
from policy.summary import no_answer
from policy.trust import error_scale
from policy.types import PlanEdit, Recommendation, Window
from tuner.errors import NotFound
from tuner.settings import Settings
from tuner.store import evidence, outcomes, plans, recommendations, request_samples
from tuner.store.plans import Outcome, PlanChange
from tuner.store.recommendations import StoredRecommendation
from tuner.workflows.autopilot_state import on_autopilot_reason
from tuner.workflows.baseline import baseline, trying_reason
from tuner.workflows.calibrate import calibration_of
from tuner.workflows.drift import Ground, ground
from tuner.workflows.ingest import silence_reason
from tuner.workflows.new_facts import facts_digest, stale_reason
from tuner.workflows.observe import history
from tuner.workflows.outcomes import note_outcomes
from tuner.workflows.refusals import refusals_of
from tuner.workflows.site import Site

WHO = "recommend"
REQUESTS_READ = 5000
RECENT_WINDOWS = 15
"""Windows back to which requests count as of late."""

EDITS_READ = 200
"""Changes of the plan that are looked at; more of them lie far behind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommended:
    """What came of one round.

    Attributes:
        said: what the policy said of each route.
        stored: rows that are open now because of it: new ones, and those updated in place.
        silence_reason: why the policy was not asked; None where it was.
    """

    said: tuple[Recommendation, ...] = ()
    stored: tuple[StoredRecommendation, ...] = ()
    silence_reason: str | None = None

    def __str__(self) -> str:
        """Say it in one line."""
        if self.silence_reason is not None:
            return self.silence_reason
        return f"{len(self.said)} routes looked at, {len(self.stored)} recommendations open"


def recommend(site: Site) -> Recommended:
    """Fold what was seen, ask the policy, and store its answers.

    Nothing is recommended without facts that are new, with an engine that has not been read for
    too long or has no traffic any more, nor while something is tried: the last approved plan and
    the open recommendations stay as they are.

    Raises:
        EngineUnreachable: the plan in force cannot be read.
        PlanRefused: the engine refused to tell it.
        SourceUnreachable: the engine's capabilities cannot be read.
    """
    now_s = site.clock()
    silence = silence_reason(site)
    if silence is not None:
        kept = "the plan in force stays until it answers"
        return Recommended(silence_reason=f"{silence}; {kept}")
    windows = history(site, now_s)
    if not windows:
        return Recommended(silence_reason=f"no traffic of {site.engine} is stored yet")
    live = site.actuator.read_back()
    trying = trying_reason(site, live)
    if trying is not None:
        return Recommended(silence_reason=trying)
    current = baseline(site, live)
    note_outcomes(site)
    found = ground(site, windows)
    facts = facts_digest(site, found, current)
    old = stale_reason(site, windows, facts)
    if old is not None:
        return Recommended(silence_reason=old)
    said = _ask_policy(site, found, current, now_s)
    return _store(site, said, found, current, facts)


def newest_of(site: Site, route: str) -> StoredRecommendation:
    """Return what was last said of a route.

    Raises:
        NotFound: the route is unknown, or nothing was said of it yet.
    """
    require_known(site, route)
    with site.store.reading() as session:
        said = recommendations.listed(session, engine=site.engine, route=route, limit=1)
    if not said:
        raise NotFound(f"nothing was said of route {route} yet; it needs traffic first")
    return said[0]


def require_known(site: Site, route: str) -> None:
    """Refuse a route that no setting and no recommendation names.

    Raises:
        NotFound: it is unknown; the message names those that are not.
    """
    with site.store.reading() as session:
        said = recommendations.routes(session, site.engine)
    known = sorted({*said, *(one.name for one in site.settings.routes)})
    if route not in known:
        listed = f"known are: {', '.join(known)}" if known else "none is known yet"
        raise NotFound(f"no route is called {route!r}; {listed}")


def routes_of(site: Site, windows: tuple[Window, ...]) -> tuple[Route, ...]:
    """Return the configured routes and those that were seen without being configured."""
    configured = {route.name: route for route in site.settings.routes}
    seen = {one.route for window in windows for one in window.observations}
    unnamed = [Route(name=name) for name in sorted(seen - configured.keys())]
    return (*configured.values(), *unnamed)


def options_of(settings: Settings) -> RecommendOptions:
    """Return what the settings ask of the policy."""
    return RecommendOptions(
        min_gain=settings.min_gain,
        half_life_s=settings.half_life_s,
        half_life_by_route={
            route.name: route.half_life_s
            for route in settings.routes
            if route.half_life_s is not None
        },
        objective=settings.objective,
        seconds_per_change=settings.change_interval_s,
        clean_pool=settings.clean_pool,
        off_tax_ratio=settings.off_tax_ratio,
    )


def _ask_policy(
    site: Site, found: Ground, current: Plan, now_s: float
) -> tuple[Recommendation, ...]:
    """Return what the policy says; routes under an alarm get no answer and keep what they have."""
    routes = routes_of(site, found.windows)
    waiting = {
        route.name: on_autopilot_reason(site, route.name) or found.waiting_reason(route.name)
        for route in routes
    }
    with site.store.reading() as session:
        applied = plans.listed(session, site.engine, outcome=Outcome.APPLIED, limit=EDITS_READ)
        samples = request_samples.newest(session, site.engine, REQUESTS_READ)
        scale = error_scale(outcomes.record(session, site.engine))
    said = advise(
        calibration_of(site, found.windows),
        [route for route in routes if waiting[route.name] is None],
        current,
        site.possible_arms(),
        now_s=now_s,
        generator=site.generator(),
        options=replace(options_of(site.settings), error_scale=scale),
        edits=[edit for change in applied for edit in edits_of(change)],
        features=checked(
            samples,
            window_s=site.settings.window_s,
            now_s=now_s,
            recent_s=RECENT_WINDOWS * site.settings.window_s,
        ),
        memory=site.memory,
    )
    return (*said, *(no_answer(name, why) for name, why in waiting.items() if why is not None))


def edits_of(change: PlanChange) -> Iterator[PlanEdit]:
    """Give the entries that a change moved on an operator's word; none where a plan came back."""
    if change.recommendation is None:
        return
    places = {(entry.route, entry.load) for entry in (*change.before.entries, *change.plan.entries)}
    for route, load in sorted(places):
        if change.before.setting_for(route, load) != change.plan.setting_for(route, load):
            yield PlanEdit(route=route, load=load, at_s=change.at.timestamp())


def _store(
    site: Site, said: tuple[Recommendation, ...], found: Ground, current: Plan, facts: str
) -> Recommended:
    """Store what the policy says, without what operators refused on evidence like this."""
    told, stored = [], []
    with site.store.writing() as session:
        pairs = evidence.replay_pairs(session, site.engine)
        for one in said:
            kept = _without_refused(site, session, one, found.windows)
            told.append(kept)
            amount = amount_of(one.route, found.windows, replay_pairs=pairs.get(one.route, 0))
            row = recommendations.add(
                session,
                site.engine,
                kept,
                current,
                who=WHO,
                at=site.now(),
                amount=amount,
                facts=facts,
            )
            stored.append(row)
    return Recommended(said=tuple(told), stored=tuple(row for row in stored if row is not None))


def _without_refused(
    site: Site, session: Session, said: Recommendation, windows: tuple[Window, ...]
) -> Recommendation:
    refusals = refusals_of(session, site.engine, said.route)
    passes_since = {
        one.recommendation: amount_of(said.route, windows, since_s=one.at_s).passes
        for one in refusals
    }
    return without_refused(said, refusals, passes_since)[0]
