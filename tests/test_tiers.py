"""What runs when: the quick tier, the sample of the sweeps, everything."""

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Collection
from importlib.metadata import Distribution, distributions, packages_distributions, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import surefoot
from tests.tiers import QUICK, SEED_WITHOUT_GIT, TESTS, commit_of, sample

ROOT = TESTS.parent
ORDER, CUTOFFS = "tests/data/test_order.py", "tests/source/test_cutoffs.py"
"""A file with a long test, and one of sweeps."""


def extras() -> set[str]:
    """The installed packages that neither surefoot itself nor pytest and hypothesis need."""
    needed, left = set(), ["surefoot", "hypothesis", "pytest"]
    while left:
        needed.add(name := left.pop())
        wanted = [Requirement(each) for each in requires(name) or ()]
        here = [
            canonicalize_name(each.name) for each in wanted if not each.marker or each.marker.evaluate({"extra": ""})
        ]
        left += [each for each in here if each not in needed]
    needed |= {canonicalize_name(each.name) for each in distributions() if is_vendored(each)}
    packages = {module: set(map(canonicalize_name, names)) for module, names in packages_distributions().items()}
    found = {module for module, names in packages.items() if needed.isdisjoint(names)}
    return found - {"tests"} - sys.stdlib_module_names  # some packages install their own


def is_vendored(distribution: Distribution) -> bool:
    """Is it a copy that setuptools brings along? They are to be seen once a test has imported setuptools."""
    return "_vendor" in Path(str(distribution.locate_file(""))).parts


def collected(*words: str, without: Collection[str] = ()) -> list[str]:
    """The names of the tests that pytest would run. A None in `sys.modules` makes the import of a package fail."""
    start = f"import sys, pytest; sys.modules.update(dict.fromkeys({list(without)})); sys.exit(pytest.main())"
    done = subprocess.run(
        [sys.executable, "-c", start, "--collect-only", "-q", "-p", "no:cacheprovider", *words],
        cwd=ROOT,
        env={**os.environ, "PYTEST_ADDOPTS": "", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]  # the names stand before what went wrong
    return [line for line in done.stdout.splitlines() if "::" in line]


# ------------------------------------------------------------------------------------------- the quick tier


def test_every_package_has_files_in_the_quick_tier():
    package = Path(surefoot.__file__).parent
    assert set(QUICK) == {"surefoot", *(file.parent.name for file in package.glob("*/__init__.py"))}
    files = [file for files in QUICK.values() for file in files]
    assert [file for file in files if not (TESTS / file).is_file()] == []
    assert [file for file, count in Counter(files).items() if count > 1] == []


def test_the_quick_tier_needs_no_extras_and_every_file_of_it_gives_tests():
    without = extras()
    assert without >= {"transformers", "yaml", "plotly"}
    files = {name.partition("::")[0].removeprefix("tests/") for name in collected("-m", "quick", without=without)}
    assert files == {file for files in QUICK.values() for file in files}


def test_what_is_quick_and_what_is_everything():
    quick, long = collected("-m", "quick", ORDER, CUTOFFS), collected("-m", "long", ORDER, CUTOFFS)
    sweeps, every = collected("-m", "sweep", ORDER, CUTOFFS), collected("--everything", "--sample", ORDER, CUTOFFS)
    assert quick
    assert long
    assert sweeps
    assert sorted(every) == sorted([*quick, *long, *sweeps])


# ------------------------------------------------------------------------------------------- the sample of the sweeps


def test_the_commit_draws_the_sample_and_its_seed_is_printed():
    seed = commit_of(ROOT) or SEED_WITHOUT_GIT
    command = [sys.executable, "-m", "pytest", "--sample", "--collect-only", "-p", "no:cacheprovider", CUTOFFS]
    printed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert f"sample of sweeps: seed {seed}; run the same again with --sample-seed {seed}\n" in printed
    drawn = {collected("--sample", "--sample-seed", each, CUTOFFS)[0] for each in (seed, "a", "b", "c")}
    assert len(drawn) > 1
    assert collected("--sample", CUTOFFS) == collected("--sample", "--sample-seed", seed, CUTOFFS)


def test_a_sample_is_an_eighth_and_over_many_commits_every_sweep_runs():
    names = [f"tests/test_one.py::test[{number}]" for number in range(100)]
    assert len(sample(names, "0d1772be")) == 13
    assert sample(names, "0d1772be") == sample(names[::-1], "0d1772be")
    assert set().union(*(sample(names, f"{commit:08x}") for commit in range(100))) == set(names)
    assert len(sample(names[:1], "0d1772be")) == 1


def test_without_a_commit_no_seed_is_made_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    assert commit_of(tmp_path) is None
    monkeypatch.setenv("PATH", "")
    assert commit_of(ROOT) is None
