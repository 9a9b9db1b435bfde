"""The power fails when the command has ended: what the disk holds then is a whole run. Needs root, for loop mounts."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from surefoot.records.run import read_run
from surefoot.training.weights import damage_of
from tests.disk.machine import HERE, Machine

MEGABYTES = 48


def call(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True)


@contextmanager
def mounted(image: Path, place: Path) -> Iterator[Path]:
    place.mkdir(exist_ok=True)
    call("mount", "-o", "loop", str(image), str(place))
    try:
        yield place
    finally:
        call("umount", str(place))


def may_mount(folder: Path) -> bool:
    if os.name != "posix" or os.geteuid() != 0 or shutil.which("mkfs.ext4") is None:
        return False
    try:
        with mounted(new_image(folder), folder / "try"):
            return True
    except subprocess.CalledProcessError:
        return False


def new_image(folder: Path) -> Path:
    image = folder / "disk"
    image.write_bytes(b"")
    os.truncate(image, MEGABYTES * 2**20)
    call("mkfs.ext4", "-q", "-F", str(image))
    return image


def after_a_power_cut(machine: Machine, folder: Path) -> tuple[str, str | None]:
    """Trains on a disk of its own; what that disk holds at the moment when the command has ended, mounted anew.

    A copy of the image has what the file system has sent to its device, and nothing that it only holds in memory.
    """
    image, copy = new_image(folder), folder / "copy"
    with mounted(image, folder / "mounted") as disk:
        done = machine.run("train", str(HERE / "wave.py"), "width=3000", "--run", str(disk / "runs" / "a"), "--no-plan")
        assert done.code == 0, done.err
        shutil.copyfile(image, copy)
    with mounted(copy, folder / "after") as disk:
        run = read_run(disk / "runs" / "a")
        assert [row.step for row in run.rows()] == list(range(1, 11))
        return run.status, damage_of(run)


def test_a_power_cut_after_the_end(machine, tmp_path):
    if not may_mount(tmp_path):
        pytest.skip("needs root, mkfs.ext4 and loop devices")
    assert after_a_power_cut(machine, tmp_path) == ("finished", None)


@pytest.mark.long
def test_twenty_power_cuts_after_the_end(machine, tmp_path):
    if not may_mount(tmp_path):
        pytest.skip("needs root, mkfs.ext4 and loop devices")
    found = [after_a_power_cut(machine, tmp_path) for _ in range(20)]
    assert found == [("finished", None)] * 20
