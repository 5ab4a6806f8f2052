"""The checks of ``spectuner doctor``. Each looks at one thing and never changes anything."""

from __future__ import annotations

import importlib.metadata
import json
import shutil
import socket
import sys
import time
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

import httpx

from collectors.records import Method
from tuner.cli.memory import DEFAULT_MAX_CONTEXT, DEFAULT_MAX_ROWS
from tuner.settings import Settings

if TYPE_CHECKING:
    from tuner.engine.memory_need import MemoryNeed

_PACKAGES = ("torch", "transformers", "sqlalchemy", "fastapi", "scikit-learn", "apscheduler")


class Verdict(StrEnum):
    """What a check found."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing looked at.

    Attributes:
        name: what was looked at.
        verdict: ok; warning where Spectuner runs without it; failed where it does not.
        detail: what was found.
        fix: what to do; empty where nothing is to be done.
    """

    name: str
    verdict: Verdict
    detail: str
    fix: str = ""

    def to_dict(self) -> dict[str, str]:
        """Return the JSON form."""
        return asdict(self)


def python_check() -> Check:
    """Look at the Python that runs this."""
    found = ".".join(map(str, sys.version_info[:3]))
    return Check(name="python", verdict=Verdict.OK, detail=f"{found} at {sys.executable}")


def packages_check() -> Check:
    """Look at the versions of the packages that matter most."""
    found, missing = [], []
    for name in _PACKAGES:
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            missing.append(name)
    if missing:
        return Check(
            name="packages",
            verdict=Verdict.FAILED,
            detail=f"missing: {', '.join(missing)}",
            fix="run `make setup`, or pip install -r requirements.lock",
        )
    return Check(name="packages", verdict=Verdict.OK, detail=", ".join(found))


def model_check() -> Check:
    """Look for the bundled model and for its dequantised copy, every byte of it."""
    from tuner.engine.errors import StartupError
    from tuner.engine.model.bundled_model import bundled_gguf, cached_bundled_model, verify_cached

    try:
        gguf, _ = bundled_gguf()
    except StartupError as error:
        return Check(name="bundled model", verdict=Verdict.FAILED, detail=str(error))
    place = cached_bundled_model()
    if place is None:
        return Check(
            name="bundled model",
            verdict=Verdict.WARNING,
            detail=f"{gguf.name} is installed, not dequantised yet",
            fix="run `spectuner model` (the first start does it otherwise)",
        )
    if not verify_cached(place):
        return Check(
            name="bundled model",
            verdict=Verdict.FAILED,
            detail=f"{place} differs from its manifest",
            fix=f"rm -r {place}, then `spectuner model`",
        )
    return Check(name="bundled model", verdict=Verdict.OK, detail=str(place))


def memory_check(
    max_rows: int = DEFAULT_MAX_ROWS,
    max_context: int = DEFAULT_MAX_CONTEXT,
    methods: tuple[Method, ...] | None = None,
) -> Check:
    """Compare the memory that the bundled engine would take with what is available.

    Args:
        max_rows: sequences in the batch.
        max_context: tokens of a sequence.
        methods: drafting methods loaded; None for all.
    """
    from tuner.engine.available import available_bytes
    from tuner.engine.limits import EngineLimits
    from tuner.engine.memory_need import memory_need
    from tuner.engine.model.bundled_model import cached_bundled_model
    from tuner.engine.settings import EngineSettings

    if cached_bundled_model() is None:
        return Check(
            name="memory",
            verdict=Verdict.WARNING,
            detail="not counted before the bundled model is prepared",
            fix="run `spectuner model`",
        )
    limits = EngineLimits(max_rows=max_rows, max_context_tokens=max_context)
    need = memory_need(EngineSettings(limits=limits, methods=methods))
    return _memory_verdict(need, available_bytes())


def device_check() -> Check:
    """Say which GPU there is, or plainly that there is none."""
    from collectors.gpu import read_gpus

    samples, reason = read_gpus(time.time())
    names = ", ".join(f"{sample.device} {sample.name}" for sample in samples)
    return Check(name="device", verdict=Verdict.OK, detail=names or f"{reason}; cpu")


def port_check(name: str, host: str, port: int, flag: str) -> Check:
    """Look whether a port is free."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            return Check(
                name=name,
                verdict=Verdict.WARNING,
                detail=f"{host}:{port} is in use ({error.strerror})",
                fix=f"stop what listens there, or choose another with {flag}",
            )
    return Check(name=name, verdict=Verdict.OK, detail=f"{host}:{port} is free")


def database_check(settings: Settings) -> Check:
    """Look whether the database answers and is at the revision this program needs."""
    from tuner.errors import TunerError
    from tuner.store import migrating

    try:
        found, wanted = migrating.current(settings.database_url), migrating.head()
    except TunerError as error:
        return Check(
            name="database",
            verdict=Verdict.WARNING,
            detail=str(error),
            fix="`spectuner db upgrade` makes it (`spectuner serve` does so too)",
        )
    if found != wanted:
        return Check(
            name="database",
            verdict=Verdict.WARNING,
            detail=f"at revision {found or 'none'}, this program needs {wanted}",
            fix="run `spectuner db upgrade`",
        )
    return Check(name="database", verdict=Verdict.OK, detail=f"at revision {found}")


def engine_check(settings: Settings) -> Check:
    """Look whether the engine answers."""
    try:
        answer = httpx.get(f"{settings.engine_url}/health", timeout=3, trust_env=False)
        detail = _engine_words(answer)
    except (httpx.HTTPError, ValueError) as error:
        return Check(
            name="engine",
            verdict=Verdict.WARNING,
            detail=f"{settings.engine_url} does not answer ({error})",
            fix="start it with `spectuner engine`, or set SPECTUNER_ENGINE_URL",
        )
    verdict = Verdict.OK if answer.is_success else Verdict.WARNING
    return Check(name="engine", verdict=verdict, detail=f"{settings.engine_url}: {detail}")


def browser_check() -> Check:
    """Look for Chromium and its driver, which only the browser tests need."""
    programs = ("chromium", "chromium-browser", "google-chrome")
    browser = next((path for name in programs if (path := shutil.which(name))), None)
    if browser and shutil.which("chromedriver"):
        return Check(name="chromium", verdict=Verdict.OK, detail=browser)
    return Check(
        name="chromium",
        verdict=Verdict.WARNING,
        detail="not found with its driver; only the browser tests need it",
        fix="apt-get install chromium chromium-driver",
    )


def _engine_words(answer: httpx.Response) -> str:
    body = json.loads(answer.text)
    words = [f"{key} {body[key]}" for key in ("status", "running", "waiting") if key in body]
    return ", ".join(words) or f"HTTP {answer.status_code}"


def _memory_verdict(need: MemoryNeed, available: int | None) -> Check:
    from tuner.engine.memory_need import HOW_TO_FIT, in_mebibytes

    wanted = f"the bundled engine needs about {in_mebibytes(need.total)} ({need.words()})"
    if available is None:
        return Check(
            name="memory",
            verdict=Verdict.WARNING,
            detail=f"{wanted}; this system does not say how much is free",
            fix=f"if there is less: {HOW_TO_FIT}",
        )
    detail = f"{wanted}, {in_mebibytes(available)} are available"
    if available >= need.total:
        return Check(name="memory", verdict=Verdict.OK, detail=detail)
    return Check(name="memory", verdict=Verdict.FAILED, detail=detail, fix=HOW_TO_FIT)
