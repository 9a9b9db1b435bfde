"""The preflight: each part is named, one that fails stops nothing else, and one that did not run says so."""

import getpass
import json
import os
import re
import socket
import subprocess
import sys
from dataclasses import replace
from inspect import getmembers, isfunction
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from surefoot.cli.main import app
from surefoot.records.codec import to_json
from surefoot.records.validation import Machine, Part, Parts, Validation, write_shared
from surefoot.validation import cases, preflight, run
from surefoot.world import cuda
from tests.second_device import MISSING
from tests.validation.made import made_up

pytestmark = [pytest.mark.sweep, pytest.mark.usefixtures("measured_cpu")]

ROOT = Path(__file__).parent.parent.parent
CPU = Machine("a CPU", "cpu", 2, 8 << 30)


@pytest.fixture(scope="module")
def tried(measured_cpu, tmp_path_factory) -> tuple[Path, object]:
    """`surefoot validate` of every part and no recipe."""
    out = tmp_path_factory.mktemp("tried")
    names = [word for name in cases.PARTS for word in ("--only", name)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "MODELS", ())
        words = [
            "validate",
            "--minutes",
            "0.5",
            *names,
            "--out",
            str(out),
            "--share",
            str(out / "more" / "shared.json"),
        ]
        return out, CliRunner().invoke(app, words)


def test_a_cpu_passes_every_part_that_it_can_run(tried):
    out, result = tried
    assert result.exit_code == 0, result.output
    found = json.loads((out / "more" / "shared.json").read_text())["preflight"]
    assert sorted(part["name"] for part in found) == sorted(cases.PARTS)
    assert {part["name"]: part["status"] for part in found} == {
        **dict.fromkeys(cases.PARTS, "ok"),
        "cuda-calls": "not run",
    }
    said = {part["name"]: part["said"] for part in found}
    assert said["cuda-calls"] == "no GPU"
    assert said["all-reduce"] == "gloo, 2 ranks"
    assert said["watch"].startswith("20 watched steps took ")
    assert said["watch"].endswith("waits not counted: no GPU")
    assert "preflight: 9 ok, 1 not run" in result.output
    assert "cuda-calls: not run: no GPU" in result.output


def test_what_is_shared_is_small_and_names_no_path_no_host_and_no_user(tried, tmp_path, monkeypatch):
    def fails() -> str:
        raise OSError(f"{getpass.getuser()} on {socket.gethostname()} cannot write {Path.home()}/a/b.txt")

    monkeypatch.setitem(preflight.PARTS, "allocate", fails)
    settings = {"threads": "2", "load": "1.0"}
    broken = Validation(replace(CPU, settings=settings), "2026-11-18", 1.0, preflight=(preflight.tried("allocate"),))
    assert broken.failed_parts[0].said == "OSError: this user on this host cannot write b.txt"
    write_shared(tmp_path / "broken.json", broken)
    write_shared(tmp_path / "gpu.json", made_up())
    for file in (tried[0] / "more" / "shared.json", tmp_path / "broken.json", tmp_path / "gpu.json"):
        assert file.stat().st_size < 10_000
        values = _texts(json.loads(file.read_text()))
        assert not [value for value in values if re.search(r"(^|\s)(/|[A-Za-z]:\\)\w", value)]
        names = rf"\b({re.escape(socket.gethostname())}|{re.escape(getpass.getuser())})\b"
        assert not [value for value in values if re.search(names, value)]
    assert json.loads((tmp_path / "broken.json").read_text())["settings"] == {"threads": "2"}
    row = json.loads((tmp_path / "gpu.json").read_text())["cases"][0]
    assert row["amounts"]["memory_bytes"] == {"planned": 8_650_000_000, "measured": 8_700_000_000}
    assert (row["name"], row["knobs"]) == ("gpt-recompute", "size=gpt2 precision=bf16-mixed")


def _texts(value) -> list[str]:
    if isinstance(value, dict | list):
        return [text for each in (value.values() if isinstance(value, dict) else value) for text in _texts(each)]
    return [value] if isinstance(value, str) else []


def test_a_part_that_fails_is_named_and_a_new_process_tries_the_rest():
    failed, rest = run.tried_parts(["missing part", "cuda-calls"], CPU)
    assert (failed.name, failed.status, failed.said) == ("missing part", "failed", "KeyError: 'missing part'")
    assert (rest.name, rest.status, rest.said) == ("cuda-calls", "not run", "no GPU")


def test_a_process_that_dies_names_the_part_it_was_at(monkeypatch):
    """The first process dies in its second part; the next one cannot even begin."""
    written = [Parts((Part("allocate", "ok"),), "resume"), None]

    def ended(command, folder, limit):
        if (left := written.pop(0)) is not None:
            Path(command[-1]).write_text(to_json(left))
        return (-11, "") if left else (None, "")

    monkeypatch.setattr(run, "_ended", ended)
    found = run.tried_parts(["allocate", "resume", "watch"], CPU, limit=7)
    assert [(part.name, part.status, part.said) for part in found] == [
        ("allocate", "ok", ""),
        ("resume", "failed", "the process was ended by SIGSEGV"),
        ("watch", "failed", "it took longer than 7 s"),
    ]


def test_an_all_reduce_does_not_wait_for_a_rank_that_never_comes(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setattr(preflight, "ALL_REDUCE_SECONDS", 2)
    part = preflight.tried("all-reduce")
    assert part.status == "failed"
    assert part.seconds < 60


def test_a_failed_part_exits_with_1(tmp_path, monkeypatch):
    part = Part("watch", "failed", "found dead-relu in a script without a bug")
    monkeypatch.setattr(run, "validate", lambda **_: Validation(CPU, "2026-11-17", 1.0, preflight=(part,)))
    result = CliRunner().invoke(app, ["validate", "--out", str(tmp_path)])
    assert result.exit_code == 1
    assert "watch: failed: found dead-relu" in " ".join(result.output.split())


def test_every_part_has_its_function_and_every_call_of_cuda_is_made():
    assert set(preflight.PARTS) == set(cases.PARTS)
    own = {name for name, function in getmembers(cuda, isfunction) if function.__module__ == cuda.__name__}
    assert set(preflight.calls_of_cuda(torch.device("cuda"), "file")) == own


def test_other_devices_have_no_all_reduce():
    (part,) = run.tried_parts(["all-reduce"], replace(CPU, kind="mps", count=1))
    assert (part.status, part.said) == ("not run", "surefoot knows no collectives of mps")


@pytest.mark.skipif(bool(MISSING), reason=MISSING)
def test_it_runs_on_the_second_device_and_names_what_that_lacks(tmp_path):
    """torch loads the device in every process, as it loads those of other makers: by an entry point."""
    made = tmp_path / "second-1.0.dist-info"
    made.mkdir()
    (made / "METADATA").write_text("Metadata-Version: 2.1\nName: second\nVersion: 1.0\n")
    (made / "entry_points.txt").write_text("[torch.backends]\nsecond = tests.second_device:register\n")
    paths = os.pathsep.join([str(tmp_path), str(ROOT), str(ROOT / "src")])
    names = ("allocate", "step-32-true", "step-bf16-mixed", "all-reduce", "resume", "watch")
    words = ["validate", "--minutes", "0.5", *(word for name in names for word in ("--only", name)), "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "surefoot", *words, "--out", str(tmp_path / "out")],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1, done.stderr
    found = {part["name"]: part for part in json.loads(done.stdout)["preflight"]}
    assert found["allocate"]["said"] == "64.00 MiB on second, written and read back"
    assert found["step-bf16-mixed"]["status"] == "failed"  # it has no autocast
    assert found["all-reduce"]["status"] == "not run"
    assert [found[name]["status"] for name in ("step-32-true", "resume", "watch")] == ["ok"] * 3, found
