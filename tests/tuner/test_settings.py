from pathlib import Path

import pytest

from collectors.records import OFF, AcceptanceRule, Method, Route, Setting
from tuner.settings import InvalidSettings, Settings, load_settings


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in Settings.model_fields:
        monkeypatch.delenv(f"SPECTUNER_{name.upper()}", raising=False)


def test_defaults_stay_on_loopback_and_keep_no_prompts(tmp_path: Path) -> None:
    settings = load_settings(data_dir=tmp_path)

    assert settings.host == "127.0.0.1"
    assert settings.public_url == "http://127.0.0.1:8400"
    assert settings.database_url == f"sqlite:///{tmp_path}/spectuner.db"
    assert settings.allowed_hosts == ("127.0.0.1", "localhost", "::1")
    assert settings.capture_enabled is False
    assert settings.require_evaluation is True


def test_default_arms_are_few_and_hold_a_chain_or_tree_of_every_shipped_method() -> None:
    arms = load_settings().arms

    assert arms[0] == OFF
    assert len(set(arms)) == len(arms) <= 12
    assert {arm.method for arm in arms} == set(Method) - {Method.LOOKAHEAD, Method.SELF_SPARSE}
    assert {arm.method for arm in arms if arm.tree_nodes} == {Method.EAGLE, Method.MEDUSA}
    assert {arm.method for arm in arms if arm.is_adaptive} == {Method.EAGLE}


def test_a_lossy_arm_is_refused_with_the_way_to_use_it() -> None:
    lossy = Setting(
        method=Method.MEDUSA, k=3, tree_nodes=9, tree_width=3, rule=AcceptanceRule.TYPICAL
    )

    with pytest.raises(InvalidSettings, match="changes outputs; pin it by request"):
        load_settings(arms=(OFF, lossy))


def test_command_line_wins_over_environment_and_environment_over_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "spectuner.toml"
    file.write_text('port = 9001\nwindow_s = 5\nengine_name = "from-file"\n')
    monkeypatch.setenv("SPECTUNER_PORT", "9002")
    monkeypatch.setenv("SPECTUNER_WINDOW_S", "6")

    settings = load_settings(file, port=9003)

    assert (settings.port, settings.window_s, settings.engine_name) == (9003, 6.0, "from-file")


def test_the_name_of_calibration_requests_is_no_route(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECTUNER_ROUTES", '[{"name": "calibration"}]')

    with pytest.raises(InvalidSettings, match="kept for `spectuner calibrate`"):
        load_settings()


def test_routes_and_arms_are_read_from_the_environment_as_json(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SPECTUNER_ROUTES", '[{"name": "chat", "tpot_limit_s": 0.2}]')
    monkeypatch.setenv("SPECTUNER_ARMS", '[{}, {"method": "prompt_lookup", "k": 3}]')

    settings = load_settings()

    assert settings.routes == (Route(name="chat", tpot_limit_s=0.2),)
    assert [arm.label for arm in settings.arms] == ["off", "prompt_lookup k=3"]
    assert settings.arms[1].lookup_max == 3


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"port": 0}, ["port = 0", "SPECTUNER_PORT"]),
        ({"timezone": "Mars/Olympus"}, ["Mars/Olympus", "Europe/Berlin"]),
        ({"engine_url": "engine:8401"}, ["engine:8401", "http://127.0.0.1:8401"]),
        ({"engine_url": "http://x:port"}, ["http://x:port"]),
        ({"routes": [{"name": "a b"}]}, ["'a b' is not a name"]),
        ({"routes": [{"name": "a"}, {"name": "a"}]}, ["twice"]),
        ({"arms": [{"method": "draft_model", "k": 99}]}, ["1 to 16", "99"]),
        ({"arms": [{"method": "draft_model", "k": 3}]}, ['"off"']),
        ({"capture_share": 1.5}, ["capture_share", "1.5"]),
        ({"prot": 1}, ["'prot'", "did you mean port?"]),
    ],
)
def test_a_bad_value_is_one_line_that_names_it(given: dict[str, object], words: list[str]) -> None:
    with pytest.raises(InvalidSettings) as refused:
        load_settings(**given)

    assert len(str(refused.value).splitlines()) == 1
    assert all(word in str(refused.value) for word in words), refused.value


def test_every_bad_value_gets_its_own_line() -> None:
    with pytest.raises(InvalidSettings) as refused:
        load_settings(port=0, min_gain=2)

    assert len(str(refused.value).splitlines()) == 2


def test_a_misspelt_variable_is_refused_with_the_likely_name() -> None:
    with pytest.raises(InvalidSettings, match="did you mean SPECTUNER_ENGINE_URL"):
        load_settings(environ={"SPECTUNER_ENGIN_URL": "http://127.0.0.1:1"})


@pytest.mark.parametrize("text", ["port =", "port 9", "\x00"])
def test_a_file_that_is_no_toml_is_named(tmp_path: Path, text: str) -> None:
    file = tmp_path / "spectuner.toml"
    file.write_text(text)

    with pytest.raises(InvalidSettings, match=r"spectuner\.toml is not valid TOML"):
        load_settings(file)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidSettings, match="does not exist"):
        load_settings(tmp_path / "absent.toml")


def test_a_list_that_is_no_json_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECTUNER_ARMS", "off")

    with pytest.raises(InvalidSettings, match=r"arms = 'off': is not JSON.*set SPECTUNER_ARMS"):
        load_settings()


def test_secrets_do_not_appear_when_settings_are_printed() -> None:
    settings = load_settings(session_secret="open-sesame", engine_api_key="sk-hidden")

    assert "open-sesame" not in repr(settings)
    assert "sk-hidden" not in repr(settings)


def test_a_data_folder_that_is_a_file_is_one_line_with_the_fix(tmp_path: Path) -> None:
    file = tmp_path / "notes"
    file.write_text("no folder")

    with pytest.raises(InvalidSettings, match=r"data_dir = .*notes.*is not a folder; name one"):
        load_settings(data_dir=file)


@pytest.mark.parametrize("value", ["inf", "1e300", "1e-300", "0"])
@pytest.mark.parametrize(
    "name", ["ingest_interval_s", "window_s", "capture_retention_days", "retention_days"]
)
def test_a_time_that_no_clock_can_hold_is_refused(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"SPECTUNER_{name.upper()}", value)

    with pytest.raises(InvalidSettings, match=f"setting {name} = '{value}'"):
        load_settings()


@pytest.mark.parametrize("key", ["open-sesamé", "open-sesame\nx: y"])
def test_a_key_that_fits_no_header_is_refused_without_being_shown(
    key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPECTUNER_ENGINE_API_KEY", key)

    with pytest.raises(InvalidSettings, match="printable ASCII") as caught:
        load_settings()

    assert "open-sesam" not in str(caught.value)
