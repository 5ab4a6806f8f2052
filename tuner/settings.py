"""Settings of the service and the demo: environment over TOML file over defaults.

Every field is read from ``SPECTUNER_<NAME>`` or from a TOML file named by ``--config`` or
``SPECTUNER_CONFIG``. A name nobody knows is refused, so that a typing error never passes silently.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Self
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import (
    BeforeValidator,
    Field,
    PlainSerializer,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import ErrorDetails
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
    TomlConfigSettingsSource,
)

from collectors.records import CALIBRATION_ROUTE, Method, Route, Setting
from policy.options import Objective
from tuner.errors import BadRequest

ENV_PREFIX = "SPECTUNER_"
_OTHER_VARIABLES = ("SPECTUNER_CONFIG", "SPECTUNER_CACHE_DIR")
_SECRET = ("engine_api_key", "session_secret")
_DEFAULT_ARMS = (
    Setting(),
    Setting(method=Method.DRAFT_MODEL, k=3),
    *(Setting(method=Method.PROMPT_LOOKUP, k=k, lookup_min=1, lookup_max=3) for k in (3, 8)),
    Setting(method=Method.SUFFIX, k=8),
    Setting(method=Method.EAGLE, k=3),
    Setting(method=Method.EAGLE, k=5, is_adaptive=True),
    Setting(method=Method.EAGLE, k=3, tree_nodes=5, tree_width=3),
    Setting(method=Method.MEDUSA, k=3, tree_nodes=5, tree_width=3),
    Setting(method=Method.MTP, k=3),
    Setting(method=Method.PARD, k=5),
    Setting(method=Method.MLP_SPECULATOR, k=3),
)
"""One to three of each method that the bundled engine ships; what an engine lacks is left out."""


class InvalidSettings(BadRequest):
    """A setting cannot be used; one line for each, naming the value and the fix."""


def _read_setting(value: object) -> object:
    return Setting.from_dict(value) if isinstance(value, Mapping) else value


def _write_setting(setting: Setting) -> dict[str, object]:
    return setting.to_dict()


Seconds = Annotated[float, Field(ge=0.01, le=31_536_000)]
"""A time that clocks, timers and dates can hold: a hundredth of a second to a year."""

Days = Annotated[float, Field(ge=0.001, le=3650)]
Arm = Annotated[Setting, BeforeValidator(_read_setting), PlainSerializer(_write_setting)]


def default_data_dir(environ: Mapping[str, str] = os.environ) -> Path:
    """Return where data is kept unless a setting says otherwise (XDG base directories)."""
    base = environ.get("XDG_DATA_HOME") or "~/.local/share"
    return Path(base).expanduser() / "spectuner"


class Settings(BaseSettings):
    """What an operator can set. Times are in seconds, shares from 0 to 1."""

    model_config = SettingsConfigDict(
        env_prefix=ENV_PREFIX, frozen=True, extra="forbid", validate_default=True
    )

    host: str = Field("127.0.0.1", description="address the console and API listen on")
    port: int = Field(8400, ge=1, le=65535, description="port of the console and API")
    public_url: str = Field("", description="address printed in links; follows host and port")
    allowed_hosts: tuple[str, ...] = Field(
        (), description="Host headers answered; loopback and the public host when empty"
    )
    data_dir: Path = Field(
        default_factory=default_data_dir, description="database, session secret, demo history"
    )
    database_url: str = Field("", description="SQLAlchemy URL; SQLite in data_dir when empty")
    engine_url: str = Field("http://127.0.0.1:8401", description="engine that is watched")
    engine_api_key: str = Field("", repr=False, description="bearer key of the engine")
    engine_name: str = Field("bundled", min_length=1, description="metric label of the engine")
    session_secret: str = Field(
        "", repr=False, description="signs session cookies; made and kept in data_dir when empty"
    )
    routes: tuple[Route, ...] = Field((), description="known routes with limits; empty takes all")
    arms: tuple[Arm, ...] = Field(_DEFAULT_ARMS, description="Settings the policy may choose from")
    ingest_interval_s: Seconds = Field(1.0, description="between pulls of the journal")
    observe_interval_s: Seconds = Field(30.0, description="between foldings of facts")
    recommend_interval_s: Seconds = Field(60.0, description="between recommendations")
    capture_enabled: bool = Field(False, description="keep prompts for replay (opt-in)")
    capture_share: float = Field(0.1, ge=0, le=1, description="share of requests captured")
    capture_per_route: int = Field(50, ge=1, le=10_000, description="captured requests a route")
    capture_retention_days: Days = Field(7.0, description="days captures are kept")
    retention_days: Days = Field(
        90.0, description="days that windows, plans and proofs are kept; what is needed stays"
    )
    replay_interval_s: Seconds = Field(3600.0, description="between shadow replays")
    replay_requests: int = Field(20, ge=1, le=10_000, description="captured requests a replay")
    gate_precision: float = Field(
        0.10, gt=0, lt=10, description="half width of a route's interval in the gate, in log ratio"
    )
    gate_requests: int = Field(
        50, ge=1, le=10_000, description="captured requests of a route that the gate takes at most"
    )
    gate_tokens: int = Field(
        100_000, ge=1, description="output tokens after which a replay of the gate ends"
    )
    gate_time_s: Seconds = Field(900.0, description="time after which a replay of the gate ends")
    divergence_interval_s: Seconds = Field(21_600.0, description="between divergence reports")
    require_evaluation: bool = Field(
        True, description="approve only what a fresh replay and divergence report cover"
    )
    min_gain: float = Field(0.03, ge=0, lt=1, description="smallest predicted gain worth a change")
    objective: Objective = Field(
        Objective.THROUGHPUT, description="throughput, latency or balanced; see docs/policy.md"
    )
    explore_live: bool = Field(
        False, description="let the service try Settings on at most 2 % of a route's live tokens"
    )
    autopilot_interval_s: Seconds = Field(
        10.0, description="between ticks of the control loop, on routes with an envelope"
    )
    change_interval_s: Seconds = Field(
        3600.0, description="between changes of one plan entry, after the first four"
    )
    clean_pool: bool = Field(
        False, description="routes could be served from engines without speculation; be advised"
    )
    off_tax_ratio: float | None = Field(
        None, ge=0, lt=10, description="what a plain step costs more here than on such an engine"
    )
    half_life_s: Seconds = Field(3600.0, description="age at which evidence counts half")
    window_s: Seconds = Field(60.0, description="length of one observation window")
    history_windows: int = Field(240, ge=1, le=100_000, description="windows the policy looks at")
    stale_after_s: Seconds = Field(30.0, description="silence after which an engine is stale")
    timezone: str = Field("UTC", description="zone of daily jobs, such as Europe/Berlin")

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Put the command line over the environment over the TOML file."""
        return init_settings, env_settings, TomlConfigSettingsSource(settings_cls)

    @field_validator("engine_url", "public_url")
    @classmethod
    def _is_http_address(cls, value: str, info: ValidationInfo) -> str:
        if not value and info.field_name == "public_url":
            return value
        parts = urlsplit(value)
        if parts.scheme not in ("http", "https") or not parts.hostname or not _has_port(value):
            raise ValueError("is not an address; write it like http://127.0.0.1:8401")
        return value.rstrip("/")

    @field_validator("engine_api_key")
    @classmethod
    def _fits_a_header(cls, value: str) -> str:
        if not (value.isascii() and value.isprintable()):
            raise ValueError("holds what no HTTP header can; use printable ASCII without line ends")
        return value

    @field_validator("arms")
    @classmethod
    def _has_arms(cls, value: tuple[Setting, ...]) -> tuple[Setting, ...]:
        if Setting() not in value:
            raise ValueError('must hold "off", the safe answer; add {"method": "off"}')
        lossy = [setting.label for setting in value if not setting.rule.is_lossless]
        if lossy:
            raise ValueError(f"hold {', '.join(lossy)}, which changes outputs; pin it by request")
        return value

    @field_validator("timezone")
    @classmethod
    def _is_known_zone(cls, value: str) -> str:
        try:
            ZoneInfo(value)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            raise ValueError("is not a time zone; write it like Europe/Berlin or UTC") from None
        return value

    @field_validator("data_dir")
    @classmethod
    def _is_folder(cls, value: Path) -> Path:
        folder = value.expanduser().absolute()
        if folder.exists() and not folder.is_dir():
            raise ValueError("is not a folder; name one, it is made where it is missing")
        return folder

    @field_validator("routes")
    @classmethod
    def _has_unique_names(cls, value: tuple[Route, ...]) -> tuple[Route, ...]:
        names = [route.name for route in value]
        repeated = sorted({name for name in names if names.count(name) > 1})
        if repeated:
            raise ValueError(f"names {', '.join(repeated)} twice; keep one entry a route")
        if CALIBRATION_ROUTE in names:
            raise ValueError(f"names {CALIBRATION_ROUTE}, kept for `spectuner calibrate`; rename")
        return value

    @model_validator(mode="after")
    def _fill_what_follows(self) -> Self:
        derived: dict[str, object] = {}
        if not self.database_url:
            derived["database_url"] = f"sqlite:///{self.data_dir / 'spectuner.db'}"
        if not self.public_url:
            host = "127.0.0.1" if self.host in ("0.0.0.0", "::") else self.host
            host = f"[{host}]" if ":" in host else host
            derived["public_url"] = f"http://{host}:{self.port}"
        if not self.allowed_hosts:
            public = urlsplit(str(derived.get("public_url", self.public_url))).hostname or ""
            known = ("127.0.0.1", "localhost", "::1", public)
            derived["allowed_hosts"] = tuple(dict.fromkeys(known))
        for name, value in derived.items():
            object.__setattr__(self, name, value)
        return self


def load_settings(
    config: Path | None = None,
    environ: Mapping[str, str] = os.environ,
    **overrides: object,
) -> Settings:
    """Read the settings; keyword arguments win over environment and file.

    Raises:
        InvalidSettings: a name is unknown, a value is out of range, or the file cannot be read.
    """
    _refuse_unknown_variables(environ)
    path = config or _config_path(environ)
    if path is not None and not path.is_file():
        raise InvalidSettings(f"settings file {path} does not exist; check --config")

    class FromFile(Settings):
        model_config = SettingsConfigDict(toml_file=path)

    given = {name: value for name, value in overrides.items() if value is not None}
    found = _checked(lambda: FromFile(**given), path)  # type: ignore[arg-type]
    return Settings.model_construct(
        **{name: getattr(found, name) for name in Settings.model_fields}
    )


def _has_port(address: str) -> bool:
    try:
        return urlsplit(address).port != 0
    except ValueError:
        return False


def _config_path(environ: Mapping[str, str]) -> Path | None:
    named = environ.get("SPECTUNER_CONFIG", "")
    return Path(named).expanduser() if named else None


def _checked(build: Callable[[], Settings], path: Path | None) -> Settings:
    try:
        return build()
    except ValidationError as error:
        lines = [_one_line(detail) for detail in error.errors(include_url=False)]
        raise InvalidSettings("\n".join(lines)) from None
    except SettingsError as error:
        raise InvalidSettings(_not_json(error)) from None
    except ValueError as error:
        raise InvalidSettings(f"settings file {path} is not valid TOML: {error}") from None


def _not_json(error: SettingsError) -> str:
    """Name the variable and its value; pydantic's message names the field in quotes."""
    field = str(error).partition('"')[2].partition('"')[0]
    name = ENV_PREFIX + field.upper()
    value = os.environ.get(name, "")
    return f"setting {field} = {value!r}: is not JSON, as lists and tables must be (set {name})"


def _one_line(detail: ErrorDetails) -> str:
    place = [str(part) for part in detail["loc"]] or ["settings"]
    if detail["type"] == "extra_forbidden":
        return f"unknown setting {place[0]!r}{_suggestion(place[0], Settings.model_fields)}"
    reason = detail["msg"].removeprefix("Value error, ")
    name = ".".join(place)
    value = "***" if place[0] in _SECRET else repr(detail["input"])
    return (f"setting {name} = {value}: {reason} (set {ENV_PREFIX}{place[0].upper()})").replace(
        "\n", " "
    )


def _refuse_unknown_variables(environ: Mapping[str, str]) -> None:
    known = [ENV_PREFIX + name.upper() for name in Settings.model_fields]
    for name in sorted(environ):
        if name.startswith(ENV_PREFIX) and name not in (*known, *_OTHER_VARIABLES):
            raise InvalidSettings(f"unknown environment variable {name}{_suggestion(name, known)}")


def _suggestion(name: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {close[0]}?" if close else "; see the settings table in README.md"
