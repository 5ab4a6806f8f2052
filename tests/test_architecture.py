"""What the house style promises and no single module can see: layers, sizes, docs, secrets."""

import ast
import re
import shutil
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.main import get_command

from tuner.cli.commands import app
from tuner.metrics import DECLARED
from tuner.settings import ENV_PREFIX, Settings

ROOT = Path(__file__).parents[1]
PACKAGES = ("collectors", "policy", "dashboards", "tuner", "migrations")
SOURCES = tuple(sorted(path for name in PACKAGES for path in (ROOT / name).rglob("*.py")))
DECLARATIONS = ("tuner/store/schema.py", "tuner/metrics.py", "tuner/engine/metrics.py")
DOCS = "\n".join(
    path.read_text() for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
)


def functions() -> Iterator[tuple[str, int]]:
    """Every function as its place and its lines, docstring left out."""
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                assert node.end_lineno is not None
                lines = node.end_lineno - node.lineno + 1
                yield f"{path.relative_to(ROOT)}:{node.name}", lines - docstring_lines(node)


def docstring_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    first = node.body[0]
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
        assert first.end_lineno is not None
        return first.end_lineno - first.lineno + 1
    return 0


def tracked_files() -> list[Path]:
    """What a commit would hold, where this is a checkout and not an installed copy."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("not a git checkout")
    return [ROOT / name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]


def text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return ""


def test_imports_follow_the_contracts() -> None:
    program = shutil.which("lint-imports", path=str(Path(sys.executable).parent))
    assert program is not None

    answer = subprocess.run(
        [program, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False
    )

    assert answer.returncode == 0, answer.stdout


def test_only_the_type_of_a_session_leaves_the_store() -> None:
    outside = [path for path in SOURCES if not {"store", "migrations"} & set(path.parts)]
    taken = {
        f"{path.relative_to(ROOT)}: {match}"
        for path in outside
        for match in re.findall(r"^\s*(?:from|import) (sqlalchemy.*)$", path.read_text(), re.M)
        if match != "sqlalchemy.orm import Session"
    }

    assert taken == set()


def test_functions_are_small() -> None:
    sizes = dict(functions())
    lengths = sorted(sizes.values())

    assert statistics.median(lengths) <= 10
    assert lengths[int(0.9 * len(lengths))] <= 35
    assert {place: size for place, size in sizes.items() if size > 60} == {}


def test_files_are_small() -> None:
    sizes = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in SOURCES}
    declared = [name for name in sizes if name.startswith("migrations/versions/")]
    limits = dict.fromkeys([*DECLARATIONS, *declared], 600)

    assert statistics.median(sizes.values()) <= 150
    assert {name: size for name, size in sizes.items() if size > limits.get(name, 400)} == {}


def test_the_service_does_not_load_the_engine() -> None:
    code = (
        "import sys; import tuner.app; "
        "print(sorted({m.split('.')[0] for m in sys.modules} & {'torch', 'transformers'}))"
        "; print([m for m in sys.modules if m.startswith(('tuner.engine', 'tuner.bench'))])"
    )

    answer = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )

    assert answer.stdout.splitlines() == ["[]", "[]"]


def command_names() -> Iterator[str]:
    for name, command in get_command(app).commands.items():  # type: ignore[attr-defined]
        inner = getattr(command, "commands", None)
        yield from (f"{name} {one}" for one in inner) if inner else [name]


@pytest.mark.parametrize("command", sorted(command_names()))
def test_every_command_is_documented(command: str) -> None:
    assert f"spectuner {command}" in DOCS


@pytest.mark.parametrize("name", sorted(Settings.model_fields))
def test_every_setting_is_documented(name: str) -> None:
    assert f"`{name}`" in DOCS
    assert Settings.model_fields[name].description


def test_every_documented_setting_exists() -> None:
    table = DOCS.split("## Settings")[1].split("\n## ")[0]
    named = set(re.findall(r"^\| `(\w+)` \|", table, flags=re.MULTILINE))
    variables = set(re.findall(rf"{ENV_PREFIX}(\w+)", DOCS)) - {"CONFIG", "CACHE_DIR", "TEST_"}

    assert named == set(Settings.model_fields)
    assert {name.lower() for name in variables if name != "NAME"} <= set(Settings.model_fields)


def metric_names() -> set[str]:
    """Metric names as declared."""
    engine = (ROOT / "tuner/engine/metrics.py").read_text()
    return set(DECLARED) | set(re.findall(r'"(spectuner_engine_[a-z0-9_]+)"', engine))


def test_every_metric_is_documented() -> None:
    names = metric_names()

    assert len(names) > 10
    assert {name for name in names if f"`{name}`" not in DOCS} == set()


def test_every_job_is_documented() -> None:
    from tuner.jobs.timetable import timetable

    jobs = {job.name for job in timetable(Settings())}

    assert {name for name in jobs if f"`{name}`" not in DOCS} == set()


def test_no_committed_file_names_a_package_index_or_a_path_of_one_machine() -> None:
    hosts = re.compile(r"https?://[\w.-]*(?:pypi|npmjs|pythonhosted|anaconda|huggingface)[\w.-]*")
    paths = re.compile("|".join("(?<![\\w.])/" + name + "/" for name in ("work", "root", "home")))
    found = [
        f"{path.relative_to(ROOT)}: {match.group()}"
        for path in tracked_files()
        for pattern in (hosts, paths)
        for match in pattern.finditer(text_of(path))
    ]

    assert found == []


def test_the_lock_pins_everything_exactly_and_covers_every_dependency() -> None:
    import tomllib

    lines = (ROOT / "requirements.lock").read_text().splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    names = {pin.split("==")[0].lower().replace("_", "-") for pin in pins}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = project["dependencies"] + project["optional-dependencies"]["dev"]

    assert all(re.fullmatch(r"[\w.-]+==[\w.]+", pin) for pin in pins)
    assert {re.split(r"[\[<>=]", one)[0].lower() for one in wanted} <= names


def test_an_installed_copy_holds_every_file_that_is_not_code() -> None:
    import tomllib

    tools = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
    patterns = tools["setuptools"]["package-data"]["*"]
    files = [
        path
        for name in PACKAGES
        for path in (ROOT / name).rglob("*")
        if path.is_file() and path.suffix not in (".py", ".pyc")
    ]

    assert len(files) > 20
    assert [path for path in files if not any(path.match(one[3:]) for one in patterns)] == []


def test_one_command_runs_everything_in_ci() -> None:
    script = (ROOT / ".ci/run").read_text().splitlines()

    assert [line for line in script if line.startswith("exec ")] == ["exec make test"]
