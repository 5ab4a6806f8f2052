from collectors.records import LOAD_LEVELS, Method, Plan, PlanEntry, Setting
from tuner.demo.exploration import explored, exploring, live_arms, shadow_arms

OFF = Setting()
DRAFT = Setting(method=Method.DRAFT_MODEL, k=3)
LOOKUP = Setting(method=Method.PROMPT_LOOKUP, k=5, lookup_min=1, lookup_max=3)
ONE, TWO = LOAD_LEVELS[:2]


def entry(route: str, setting: Setting, load: object = ONE) -> PlanEntry:
    return PlanEntry.from_dict(
        {"route": route, "load": getattr(load, "label", load), "setting": setting.to_dict()}
    )


def test_exploring_changes_only_the_places_it_names() -> None:
    before = Plan(entries=(entry("chat", LOOKUP), entry("rag", LOOKUP, TWO)))

    during = exploring(before, ("chat", "rag"), (ONE,), DRAFT).during

    assert during.setting_for("chat", ONE) == DRAFT
    assert during.setting_for("rag", ONE) == DRAFT
    assert during.setting_for("rag", TWO) == LOOKUP
    assert during.setting_for("chat", TWO) == OFF


def test_after_exploring_the_plan_is_what_it_was() -> None:
    before = Plan(entries=(entry("chat", LOOKUP), entry("rag", LOOKUP, TWO)))
    exploration = exploring(before, ("chat", "rag"), (ONE, TWO), DRAFT)

    assert explored(exploration.during, exploration).digest == before.digest


def test_what_an_operator_changed_while_exploring_stays() -> None:
    before = Plan(entries=(entry("chat", LOOKUP),))
    exploration = exploring(before, ("chat", "rag"), (ONE,), DRAFT)
    changed = Plan(entries=(entry("chat", OFF), entry("rag", DRAFT)))

    after = explored(changed, exploration)

    assert after.setting_for("chat", ONE) == OFF
    assert after.setting_for("rag", ONE) == OFF
    assert len(after.entries) == 1


def test_live_tries_the_middle_of_each_method_and_shadow_its_longest() -> None:
    drafts = [Setting(method=Method.DRAFT_MODEL, k=k) for k in (5, 1, 3)]

    assert live_arms([OFF, *drafts, LOOKUP], {}) == (DRAFT, LOOKUP)
    assert [arm.k for arm in shadow_arms([OFF, *drafts, LOOKUP])] == [5, 5]


def test_of_many_methods_live_tries_those_that_did_best_in_shadow() -> None:
    methods = (Method.EAGLE, Method.MTP, Method.PARD, Method.SUFFIX, Method.DRAFT_MODEL)
    arms = [OFF, *(Setting(method=method, k=3) for method in methods)]
    speeds = {Method.SUFFIX: 1.4, Method.EAGLE: 1.2, Method.MTP: 0.7, Method.PARD: 0.9}

    tried = [arm.method for arm in live_arms(arms, speeds)]

    assert tried == [Method.SUFFIX, Method.EAGLE, Method.DRAFT_MODEL, Method.PARD]


def test_of_a_chain_and_a_tree_the_tree_is_the_longer_draft() -> None:
    chain = Setting(method=Method.EAGLE, k=4)
    tree = Setting(method=Method.EAGLE, k=4, tree_nodes=16, tree_width=4)

    assert shadow_arms([OFF, tree, chain]) == (tree,)


def test_an_engine_that_can_only_decode_plainly_has_nothing_to_explore() -> None:
    assert live_arms([OFF], {}) == ()
    assert shadow_arms([OFF]) == ()
