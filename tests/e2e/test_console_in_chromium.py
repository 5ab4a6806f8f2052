"""The whole loop in a browser: an operator approves, and the real engine runs the new plan."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest
from selenium import webdriver
from selenium.common.exceptions import NoSuchElementException, StaleElementReferenceException
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

from collectors.records import LOAD_LEVELS, OFF, Method, Plan, Setting
from dashboards.access import Role
from policy.types import AcceptanceCurve, Advice, Evidence, Interval, LoadChange, Recommendation
from tests.tuner.engine.server.tiny_model import CONTEXT_TOKENS, write_tiny_model
from tuner.api.tokens import issue
from tuner.store import migrating, open_store, recommendations

ENGINE = "bundled"
ROUTE = "code_edit"
LOOKUP = Setting(method=Method.PROMPT_LOOKUP, k=3, lookup_min=1, lookup_max=3)
START_S = 600
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--window-size=1280,900",
)

pytestmark = [pytest.mark.slow]


@dataclass(frozen=True, slots=True)
class Running:
    engine_url: str
    console_url: str
    link: str
    number: int

    def live_plan(self) -> Plan:
        answer = httpx.get(f"{self.engine_url}/spec/plan", trust_env=False, timeout=60)
        return Plan.from_dict(answer.raise_for_status().json())


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    tmp_path = tmp_path_factory.mktemp("running")
    model = write_tiny_model(tmp_path / "model")
    ports = free_ports(2)
    engine_url, console_url = (f"http://127.0.0.1:{port}" for port in ports)
    engine = ("engine", "--model", str(model), "--draft", "none", "--port", str(ports[0]))
    limits = ("--max-rows", "4", "--max-context", str(CONTEXT_TOKENS), "--threads", "1")
    serve = ("serve", "--port", str(ports[1]), "--engine-url", engine_url)
    with (
        process(tmp_path, *engine, *limits) as started_engine,
        process(tmp_path, *serve) as started_service,
    ):
        wait_for_health(engine_url, started_engine)
        wait_for_health(console_url, started_service)
        token, number = prepare(tmp_path / "spectuner.db")
        link = f"{console_url}/sign-in?token={token}"
        yield Running(engine_url, console_url, link, number)


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[webdriver.Chrome]:
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not (chromium and driver) and "CI" not in os.environ:
        pytest.skip("chromium or chromedriver is not installed")
    options = webdriver.ChromeOptions()
    options.binary_location = str(chromium)
    for flag in (*FLAGS, f"--user-data-dir={tmp_path / 'profile'}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    started = webdriver.Chrome(options=options, service=Service(str(driver)))
    yield started
    started.quit()


def test_an_operator_approves_in_the_browser_and_the_engine_runs_the_plan(
    running: Running, browser: webdriver.Chrome
) -> None:
    assert running.live_plan().setting_for(ROUTE, LOAD_LEVELS[0]) == OFF

    sign_in(running, browser)
    assert "token=" not in browser.page_source
    wait(browser, lambda: "0 lost" in browser.find_element(By.CSS_SELECTOR, ".engine.ok").text)
    assert ENGINE in browser.find_element(By.CSS_SELECTOR, ".engine").text

    follow(browser, "1 recommendation")
    follow(browser, str(running.number))
    assert "prompt_lookup k=3" in browser.find_element(By.TAG_NAME, "main").text
    browser.find_element(By.NAME, "reason").send_keys(
        "the replay agrees <b>with it</b>", Keys.ENTER
    )
    assert shown_state(browser) == "pending"
    browser.find_element(By.CSS_SELECTOR, "button.a-approve").click()
    wait(browser, lambda: shown_state(browser) == "promoted")

    unfold(browser)
    assert running.live_plan().setting_for(ROUTE, LOAD_LEVELS[0]) == LOOKUP
    assert drafted_by(running) > 0
    brought = browser.find_element(By.ID, "realised").text
    assert "not enough data yet" in brought
    assert "no experiment" in brought
    history = browser.find_elements(By.TAG_NAME, "table")[-1].text
    assert "Ada" in history
    assert "the replay agrees <b>with it</b>" in history

    browser.find_element(By.NAME, "reason").send_keys("only a trial")
    browser.find_element(By.CSS_SELECTOR, "button.a-roll_back").click()
    wait(browser, lambda: shown_state(browser) == "rolled back")
    assert running.live_plan().setting_for(ROUTE, LOAD_LEVELS[0]) == OFF
    assert console_complaints(browser) == []


def test_long_reasons_are_read_without_scrolling_sideways(
    running: Running, browser: webdriver.Chrome
) -> None:
    sign_in(running, browser)
    browser.get(f"{running.console_url}/recommendations/{running.number}")

    unfold(browser)
    reason = browser.find_element(By.CSS_SELECTOR, "tr.why")
    cut_off = (
        "return [...document.querySelectorAll('.scroll')].some(e => e.scrollWidth > e.clientWidth)"
    )

    assert "Edits repeat their context." in reason.text
    assert "is not proposed: it gives -23.1%" in reason.text
    assert browser.execute_script(cut_off) is False


def test_charts_are_drawn_and_the_theme_can_be_switched(
    running: Running, browser: webdriver.Chrome
) -> None:
    sign_in(running, browser)
    browser.get(f"{running.console_url}/recommendations/{running.number}")
    unfold(browser)
    wait(browser, lambda: len(browser.find_elements(By.CSS_SELECTOR, ".plot canvas")) > 0)
    assert browser.find_element(By.CSS_SELECTOR, ".plot canvas").size["width"] > 300

    def ground() -> str:
        return browser.find_element(By.TAG_NAME, "body").value_of_css_property("background-color")

    before = ground()
    browser.find_element(By.ID, "theme").click()
    assert ground() != before
    browser.refresh()
    assert ground() != before
    assert console_complaints(browser) == []


def test_verdict_figures_evidence_and_decision_stand_above_the_fold(
    running: Running, browser: webdriver.Chrome
) -> None:
    sign_in(running, browser)
    browser.set_window_rect(0, 0, 1280, 800)
    browser.get(f"{running.console_url}/recommendations/{running.number}")

    verdict = browser.find_element(By.CSS_SELECTOR, ".verdict")
    for words in ("This route's speed", "Engine total", "At worst", "Other routes", "Evidence"):
        assert words in verdict.text
    bottoms = (
        "return ['.verdict', '.decide'].map("
        "one => document.querySelector(one).getBoundingClientRect().bottom)"
    )
    assert all(bottom <= 800 - 139 for bottom in browser.execute_script(bottoms))
    folds = browser.find_elements(By.CSS_SELECTOR, "details.fold")
    assert len(folds) >= 4
    assert not any(fold.get_attribute("open") for fold in folds)


def unfold(browser: webdriver.Chrome) -> None:
    for fold in browser.find_elements(By.CSS_SELECTOR, "details.fold > summary"):
        fold.click()


def sign_in(running: Running, browser: webdriver.Chrome) -> None:
    browser.get(running.link)
    wait(browser, lambda: browser.current_url == f"{running.console_url}/")


def shown_state(browser: webdriver.Chrome) -> str:
    return browser.find_element(By.CSS_SELECTOR, "h1 .badge").text


def wait(browser: webdriver.Chrome, condition: Callable[[], bool]) -> None:
    passing = (StaleElementReferenceException, NoSuchElementException)
    WebDriverWait(browser, START_S, ignored_exceptions=passing).until(lambda _: condition())


def follow(browser: webdriver.Chrome, link: str) -> None:
    """Follow a link, also when the page is just replacing its figures."""
    before = browser.current_url

    def has_left() -> bool:
        if browser.current_url == before:
            browser.find_element(By.LINK_TEXT, link).click()
        return browser.current_url != before

    wait(browser, has_left)


def console_complaints(browser: webdriver.Chrome) -> list[str]:
    """Return errors, among them everything that the content security policy refused."""
    return [entry["message"] for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]


def drafted_by(running: Running) -> int:
    """Return the draft tokens of one request on the changed route, as its answer tells."""
    body = {"model": "tiny", "prompt": "the user, the user, the user,", "max_tokens": 48}
    body |= {"temperature": 0, "ignore_eos": True}
    with httpx.Client(base_url=running.engine_url, trust_env=False, timeout=60) as client:
        body["model"] = client.get("/v1/models").json()["data"][0]["id"]
        headers = {"x-spectuner-route": ROUTE}
        answer = client.post("/v1/completions", json=body, headers=headers).raise_for_status()
    return int(answer.json()["metrics"]["speculative_decoding"]["num_draft_tokens"])


def prepare(database: Path) -> tuple[str, int]:
    """Make an operator's token and a recommendation that waits; return both."""
    store, now = open_store(f"sqlite:///{database}"), datetime.now(UTC)
    migrating.require_head(store)
    token = issue(store, name="Ada", role=Role.OPERATOR, at=now, by="test")
    with store.writing() as session:
        stored = recommendations.add(
            session, ENGINE, what_is_said(), Plan(), who="recommend", at=now
        )
    store.close()
    assert stored is not None
    return token, stored.id


def what_is_said() -> Recommendation:
    some = Interval(low=0.5, mean=0.6, high=0.7)
    return Recommendation(
        route=ROUTE,
        advice=Advice.CHANGE,
        changes=(
            LoadChange(
                load=LOAD_LEVELS[0],
                current=OFF,
                proposed=LOOKUP,
                tokens_per_pass=Interval(low=1.4, mean=1.5, high=1.6),
                current_tokens_per_pass=1.0,
                step_ratio=Interval(low=1.1, mean=1.15, high=1.2),
                token_share=0.9,
                route_speed=Interval(low=1.2, mean=1.3, high=1.4),
                engine_total=Interval(low=1.2, mean=1.3, high=1.4),
                over_off=Interval(low=1.2, mean=1.3, high=1.4),
                goodput=Interval(low=50.0, mean=60.0, high=70.0),
                runner_up=(OFF, 1.0),
                runner_up_reason=f"it gives -23.1% against {LOOKUP.label}, " + 8 * "and so on, ",
                reason=8 * "Edits repeat their context. ",
            ),
        ),
        curves=(
            AcceptanceCurve(
                method=Method.PROMPT_LOOKUP,
                conditional=(some, some),
                attempts=(100.0, 60.0),
                coverage=0.5,
                evidence=(Evidence.REPLAY,),
            ),
        ),
        reasons=("Edits repeat their context.",),
    )


@contextmanager
def process(folder: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command of ours; it must end by itself, and well, when asked to."""
    environment = {
        **{name: value for name, value in os.environ.items() if "SPECTUNER" not in name},
        "SPECTUNER_DATA_DIR": str(folder),
        "SPECTUNER_REQUIRE_EVALUATION": "false",
        "SPECTUNER_RECOMMEND_INTERVAL_S": "86400",
        "SPECTUNER_STALE_AFTER_S": "60",
        "OMP_NUM_THREADS": "1",
    }
    with (folder / f"{arguments[0]}.log").open("wb") as log:
        started = subprocess.Popen(
            [sys.executable, "-m", "tuner", *arguments],
            env=environment,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        try:
            yield started
            started.send_signal(signal.SIGTERM)
            assert started.wait(timeout=START_S) == 0
        finally:
            started.kill()
            started.wait()


def wait_for_health(url: str, started: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        assert started.poll() is None, f"the process behind {url} ended with {started.returncode}"
        try:
            if httpx.get(f"{url}/health", trust_env=False, timeout=5).status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.2)
    pytest.fail(f"{url} was not healthy within {START_S} s")


def free_ports(count: int) -> list[int]:
    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [listener.getsockname()[1] for listener in listeners]
    for listener in listeners:
        listener.close()
    return ports
