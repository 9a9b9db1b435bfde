"""What is shipped: the wheel holds all of the package, the sdist what a packager needs, and the forms are accepted."""

import re
import subprocess
import sys
import tarfile
import zipfile
from email import message_from_string
from pathlib import Path

import pytest
import yaml

import surefoot

ROOT = Path(__file__).parent.parent
FORMS = ("bug", "device", "false-finding", "missed-bug")
SCHEMAS = {
    "CITATION.cff": "citation-file-format",
    ".github/ISSUE_TEMPLATE/config.yml": "github-issue-config",
    **{f".github/ISSUE_TEMPLATE/{name}.yml": "github-issue-forms" for name in FORMS},
}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a wheel and an sdist."""
    pytest.importorskip("hatchling", reason="pip install hatchling")
    folder = tmp_path_factory.mktemp("dist")
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-d", str(folder)], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def wheel(built: Path) -> zipfile.ZipFile:
    return zipfile.ZipFile(next(built.glob("*.whl")))


@pytest.fixture(scope="module")
def in_sdist(built: Path) -> set[str]:
    """The names in the sdist, without the folder that holds them all."""
    with tarfile.open(next(built.glob("*.tar.gz"))) as archive:
        return {name.partition("/")[2] for name in archive.getnames()}


def test_the_wheel_holds_every_file_of_the_package_and_nothing_else(wheel):
    package = ROOT / "src" / "surefoot"
    files = {
        path.relative_to(package.parent).as_posix()
        for path in package.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {"surefoot/py.typed", "surefoot/hardware/datasheets.json", "surefoot/reports/page.css"} <= files
    notes = {name for name in wheel.namelist() if re.match(r"surefoot-[\d.]+\.dist-info/", name)}
    assert set(wheel.namelist()) - notes == files


def test_the_wheel_says_what_it_is(wheel):
    (name,) = (name for name in wheel.namelist() if name.endswith("METADATA"))
    said = message_from_string(wheel.read(name).decode())
    assert said["Version"] == surefoot.__version__
    assert "torch>=2.8" in said.get_all("Requires-Dist")
    assert {"report", "hf", "finetune", "data", "log", "remote"} <= set(said.get_all("Provides-Extra"))
    (entry,) = (name for name in wheel.namelist() if name.endswith("entry_points.txt"))
    assert "surefoot = surefoot.cli.main:main" in wheel.read(entry).decode()


def test_the_sdist_holds_source_tests_and_texts_but_no_bug_corpus(in_sdist):
    top = {name.partition("/")[0] for name in in_sdist}
    assert top >= {"src", "tests", "docs", "examples", "LICENSE", "README.md", "CHANGELOG.md", "CITATION.cff"}
    assert "corpus" not in top
    assert "tests/test_bench_silent_bugs.py" not in in_sdist
    assert {"tests/conftest.py", "tests/test_packaging.py", "src/surefoot/py.typed"} <= in_sdist
    junk = ("__pycache__", ".hypothesis", ".venv", ".mypy_cache", ".pyc")
    assert not [name for name in in_sdist if name.startswith("runs/") or any(part in name for part in junk)]


def test_the_version_is_the_same_everywhere():
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert cited["version"] == surefoot.__version__
    assert re.fullmatch(r"\d+\.\d+\.\d+", surefoot.__version__)
    newest = re.search(r"^## (\d+\.\d+\.\d+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest is not None
    assert newest[1] == surefoot.__version__


@pytest.mark.parametrize("file", SCHEMAS)
def test_a_form_is_accepted_by_its_schema(file: str):
    pytest.importorskip("check_jsonschema", reason="pip install check-jsonschema")
    command = [
        "-m",
        "check_jsonschema",
        "--force-filetype",
        "yaml",
        "--builtin-schema",
        f"vendor.{SCHEMAS[file]}",
        file,
    ]
    done = subprocess.run([sys.executable, *command], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_forms_ask_for_what_is_needed():
    def required(name: str) -> set[str]:
        body = yaml.safe_load((ROOT / ".github" / "ISSUE_TEMPLATE" / f"{name}.yml").read_text())["body"]
        return {each["id"] for each in body if each.get("validations", {}).get("required")}

    assert "doctor" in required("bug")
    assert "shared" in required("device")
    assert "script" in required("false-finding")
    assert {"buggy", "fixed"} <= required("missed-bug")
