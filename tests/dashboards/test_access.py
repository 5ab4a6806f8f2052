from __future__ import annotations

import pytest

from dashboards.access import Actor, Role, Session, require_role
from dashboards.errors import NotAllowed, SignInNeeded
from dashboards.pages.access import safe_path


def test_each_role_may_do_what_the_ones_before_may() -> None:
    allowed = {(have, need) for have in Role for need in Role if have.allows(need)}
    assert allowed == {
        (Role.VIEWER, Role.VIEWER),
        (Role.OPERATOR, Role.VIEWER),
        (Role.OPERATOR, Role.OPERATOR),
        (Role.ADMIN, Role.VIEWER),
        (Role.ADMIN, Role.OPERATOR),
        (Role.ADMIN, Role.ADMIN),
    }


def test_a_role_that_is_too_low_is_refused_by_name() -> None:
    session = Session(actor=Actor(name="Ada", role=Role.VIEWER), csrf="x")
    with pytest.raises(NotAllowed, match="'Ada' has role viewer; this needs operator"):
        require_role(session, Role.OPERATOR)
    with pytest.raises(SignInNeeded):
        require_role(None, Role.VIEWER)
    assert require_role(session, Role.VIEWER) is session


@pytest.mark.parametrize("target", ["/", "/recommendations/3", "/routes/a?period=300"])
def test_a_path_of_ours_is_kept(target: str) -> None:
    assert safe_path(target) == target


@pytest.mark.parametrize(
    "target",
    [
        "https://evil.example/",
        "//evil.example",
        "/\\evil.example",
        "/\t/evil.example",
        "/a\\..\\b",
        "javascript:alert(1)",
        "/sign-out",
        "",
    ],
)
def test_a_target_elsewhere_becomes_the_first_page(target: str) -> None:
    assert safe_path(target) == "/"
