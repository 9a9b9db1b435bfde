"""What a power cut could take: at the moment when a run says that it is finished, nothing of it is only in memory."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from tests.disk.machine import HERE, Machine


class Disk:
    """What of a recorded run is not on the disk yet: the bytes of files, and names in folders."""

    def __init__(self) -> None:
        self.bytes: set[str] = set()
        self.names: set[str] = set()

    def see(self, call: str, path: str, other: str) -> None:
        if call in ("create", "mkdir"):
            self.names.add(path)
        if call in ("create", "write"):
            self.bytes.add(path)
        elif call == "fsync":
            self.bytes.discard(path)
            self.names = {name for name in self.names if str(Path(name).parent) != path}
        elif call == "unlink":
            self.bytes.discard(path)
            self.names.discard(path)
        elif call == "rename":
            self._rename(path, other)

    def _rename(self, old: str, new: str) -> None:
        def moved(name: str) -> str:
            return new + name.removeprefix(old) if name == old or name.startswith(f"{old}/") else name

        self.bytes = {moved(name) for name in self.bytes}
        self.names = {moved(name) for name in self.names - {old}} | {new}


def recorded(machine: Machine, folder: Path, record: Path, *words: str) -> list[tuple[str, str, str]]:
    done = machine.run("train", str(HERE / "wave.py"), "--run", str(folder), *words, record=record)
    assert done.code == 0, done.err
    # The library of safetensors renames a file of its own, by a call that the shim does not see.
    text = re.sub(r"/\.weights\.part/\.tmp\w+", "/.weights.part/model.safetensors", record.read_text())
    lines = [line.split("\t") for line in text.splitlines()]
    return [(call, path, other) for call, path, other in lines]


def last_rename(calls: list[tuple[str, str, str]], to: Path) -> int:
    return max(number for number, (call, _, other) in enumerate(calls) if (call, other) == ("rename", str(to)))


def unsafe(calls: Iterable[tuple[str, str, str]], folder: Path) -> list[str]:
    """Bytes and names of a run that these calls leave in memory, beside locks and drafts that nobody will read."""
    disk = Disk()
    for call in calls:
        disk.see(*call)
    read = {
        name for name in disk.bytes | disk.names if not any(part.startswith(".draft-") for part in Path(name).parts)
    }
    mine = {name for name in read if name == str(folder) or name.startswith(f"{folder}/")}
    return sorted(name for name in mine if Path(name).name != "lock")


def test_all_is_synced_before_the_run_says_finished(machine, tmp_path):
    """The run's folder is two levels deep, and both are new."""
    folder = tmp_path / "new" / "run"
    calls = recorded(machine, folder, tmp_path / "record")
    said = last_rename(calls, folder / "run.json")
    assert '"status": "finished"' in (folder / "run.json").read_text()
    draft = str(folder / ".run.json.part")
    assert unsafe(calls[:said], tmp_path / "new") == [draft]  # its name; the name in its place follows
    assert ("fsync", draft, "") in calls[said - 2 : said]
    assert calls[said + 1] == ("fsync", str(folder), "")
    assert unsafe(calls, tmp_path / "new") == []


def test_the_weights_have_their_name_after_their_bytes(machine, tmp_path):
    folder = tmp_path / "run"
    calls = recorded(machine, folder, tmp_path / "record", "--no-plan")
    named = last_rename(calls, folder / "model.safetensors")
    assert calls[named - 1] == ("fsync", str(folder / ".weights.part" / "model.safetensors"), "")
    assert calls[named + 1] == ("fsync", str(folder), "")
    assert named < last_rename(calls, folder / "run.json")


def test_the_rows_of_a_checkpoint_are_synced_before_it_has_its_name(machine, tmp_path):
    folder = tmp_path / "run"
    calls = recorded(machine, folder, tmp_path / "record", "--no-plan")
    log = str(folder / "log.jsonl")
    rows = [number for number, (call, path, _) in enumerate(calls) if (call, path) == ("write", log)]
    for step in (3, 6, 9, 10):
        named = last_rename(calls, folder / "checkpoints" / f"step-{step:09}")
        synced = [number for number, call in enumerate(calls[:named]) if call == ("fsync", log, "")]
        assert any(rows[step - 1] < number for number in synced)


def test_a_disk_that_is_not_synced_would_be_noticed():
    disk = Disk()
    for call in (("mkdir", "/run", ""), ("create", "/run/a", ""), ("rename", "/run/a", "/run/b")):
        disk.see(*call)
    assert (disk.bytes, disk.names) == ({"/run/b"}, {"/run", "/run/b"})
    disk.see("fsync", "/run/b", "")
    disk.see("fsync", "/run", "")
    assert (disk.bytes, disk.names) == (set(), {"/run"})
    disk.see("fsync", "/", "")
    assert disk.names == set()
