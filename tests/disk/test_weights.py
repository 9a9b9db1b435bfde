"""Weights that are damaged are not read; the same command makes them anew from the last checkpoint, or says why not."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from surefoot.errors import RunError
from surefoot.records.run import read_run
from surefoot.ways.export import export
from tests.disk.machine import HERE, KILL, Done, Fault, Machine

WAVE = str(HERE / "wave.py")


@pytest.fixture(scope="module")
def finished(machine: Machine) -> Path:
    folder = machine.folder / "finished"
    assert train(machine, folder).code == 0
    return folder


@pytest.fixture
def folder(finished: Path, tmp_path: Path) -> Path:
    """A finished run of its own for every test."""
    shutil.copytree(finished, tmp_path / "run")
    return tmp_path / "run"


def train(machine: Machine, folder: Path, **options) -> Done:
    return machine.run("train", WAVE, "--run", str(folder), "--no-plan", **options)


def flip(file: Path, place: int) -> None:
    content = bytearray(file.read_bytes())
    content[place] ^= 1
    file.write_bytes(content)


DAMAGES = {
    "a bit of a number": lambda file: flip(file, file.stat().st_size - 3),
    "a bit of the header": lambda file: flip(file, 20),
    "zeros of the right size": lambda file: file.write_bytes(bytes(file.stat().st_size)),
    "cut": lambda file: file.write_bytes(file.read_bytes()[:-1]),
    "empty": lambda file: file.write_bytes(b""),
    "missing": Path.unlink,
}


@pytest.mark.parametrize("what", DAMAGES)
def test_damaged_weights_are_refused_then_made_anew(what, machine, folder, finished):
    DAMAGES[what](folder / "model.safetensors")
    with pytest.raises(RunError, match=r"model.safetensors .*\nrun the same `surefoot train` command again"):
        export(str(folder), WAVE)
    done = train(machine, folder)
    assert done.code == 0, done.err
    assert (folder / "model.safetensors").read_bytes() == (finished / "model.safetensors").read_bytes()
    run = read_run(folder)
    assert (run.status, run.steps, run.weights_digest) == ("finished", 10, read_run(finished).weights_digest)
    assert [event.kind for event in run.happened()] == ["weights-damaged", "resumed"]
    assert len((folder / "log.jsonl").read_text().splitlines()) == 10  # no step was taken again


def test_whole_weights_are_left_alone(machine, folder):
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.name != "lock"}
    assert train(machine, folder).code == 0
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.name != "lock"} == before


def test_an_older_checkpoint_does_too(machine, folder, finished):
    flip(folder / "model.safetensors", 300)
    flip(folder / "checkpoints" / "step-000000010" / "__0_0.distcp", 50)
    assert train(machine, folder).code == 0
    assert (folder / "model.safetensors").read_bytes() == (finished / "model.safetensors").read_bytes()


@pytest.mark.parametrize("left", ["none", "damaged"])
def test_without_a_checkpoint_it_says_what_is_lost(left, machine, folder):
    flip(folder / "model.safetensors", 300)
    if left == "none":
        shutil.rmtree(folder / "checkpoints")
    for file in folder.glob("checkpoints/step-*/__0_0.distcp"):
        flip(file, 50)
    before = (folder / "run.json").read_text()
    for _ in range(4):  # as often as it is asked
        done = train(machine, folder)
        assert done.code == 2
        assert done.err.startswith(f"error: the weights of {folder} are lost: model.safetensors is damaged"), done.err
        assert "restore model.safetensors from a copy, or train again in another directory" in done.said()
    assert (folder / "run.json").read_text() == before


@pytest.mark.parametrize("place", [".weights.part/*", "model.safetensors", ".run.json.part", "run.json"])
def test_a_repair_that_is_killed_is_repaired(place, machine, folder, finished):
    (folder / "model.safetensors").unlink()
    killed = train(machine, folder, fault=Fault(f"{folder}/{place}", "write,rename", KILL, skip=place == "run.json"))
    assert killed.code == KILL
    assert train(machine, folder).code == 0
    assert (folder / "model.safetensors").read_bytes() == (finished / "model.safetensors").read_bytes()
    assert not (folder / ".weights.part").exists()


def test_a_run_without_a_digest_is_read_if_it_can_be(machine, folder):
    """As surefoot 0.1 made it."""
    record = json.loads((folder / "run.json").read_text())
    del record["weights_digest"], record["weights_bytes"], record["digest"]
    (folder / "run.json").write_text(json.dumps(record))
    assert train(machine, folder).code == 0
    assert read_run(folder).weights_digest == ""
    (folder / "model.safetensors").write_bytes(bytes(900))
    assert train(machine, folder).code == 0
    assert read_run(folder).weights_digest
