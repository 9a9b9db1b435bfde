"""Disks that fail, files that lie: a save that went wrong says so and leaves the older ones alone."""

import errno
import io
import os
import pickle
import random
import resource
import shutil
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp

from surefoot.checkpoint import files, reader, store, writer
from surefoot.checkpoint.files import fingerprint
from surefoot.checkpoint.manifest import Manifest, read_manifest, write_manifest
from surefoot.checkpoint.store import Checkpoints
from surefoot.errors import CheckpointError
from tests.checkpoint.conftest import is_state, state

ROOT = Path(__file__).parent.parent.parent


# ------------------------------------------------------------------------------------------- damage


def damages(path: Path, chance: random.Random) -> dict[str, Any]:
    """What can happen to a file: a bit flips, its end or all of it is lost, a part of it is zero."""
    data = path.read_bytes()
    place, hole = chance.randrange(len(data)), min(len(data), 64)
    start = next(
        at for at in (chance.randrange(len(data) - hole + 1) for _ in range(1000)) if any(data[at : at + hole])
    )
    flipped = bytearray(data)
    flipped[place] ^= 1 << chance.randrange(8)
    return {
        "flip": bytes(flipped),
        "truncation": data[:place],
        "hole": data[:start] + bytes(hole) + data[start + hole :],
        "one byte more": data + b"\0",
        "deletion": None,
    }


@pytest.mark.parametrize("name", ["MANIFEST", ".metadata", "state.json", "__0_0.distcp"])
def test_any_damage_is_named_and_the_previous_one_is_taken(checkpoints, folder, name):
    for step in (1, 2):
        checkpoints.save(step, state(step))
    path = folder / "step-000000002" / name
    original, chance = path.read_bytes(), random.Random(0)
    for _ in range(5):
        for data in damages(path, chance).values():
            path.unlink() if data is None else path.write_bytes(data)
            found = checkpoints.newest()
            [(rejected, reason)] = checkpoints.rejected
            assert rejected == path.parent
            assert reason.startswith(name), reason
            assert is_state(found.load(), 1)
            path.write_bytes(original)
    assert is_state(checkpoints.newest().load(), 2)


def test_no_bit_of_a_manifest_can_change(checkpoints):
    checkpoints.save(1, state(1))
    path = checkpoints.newest().path / "MANIFEST"
    original = path.read_bytes()
    for place in range(len(original)):
        for bit in range(8):
            path.write_bytes(original[:place] + bytes([original[place] ^ 1 << bit]) + original[place + 1 :])
            with pytest.raises(CheckpointError, match=r"^MANIFEST is damaged"):
                read_manifest(path.parent)


# ------------------------------------------------------------------------------------------- full disks


FILL = """
import sys
from pathlib import Path
from surefoot.checkpoint.store import Checkpoints
from surefoot.errors import CheckpointError
from tests.checkpoint.conftest import state, is_state
folder = Path(sys.argv[1])
checkpoints = Checkpoints(folder, asynchronous=sys.argv[2] == "async")
checkpoints.save(1, state(1, size=100_000))
checkpoints.wait()
try:
    checkpoints.save(2, state(2, size=1_500_000))
    checkpoints.wait()
    print("it fitted")
except CheckpointError as error:
    print(error)
assert not list(folder.glob(".draft-*"))
assert is_state(checkpoints.newest().load(), 1) and not checkpoints.rejected
checkpoints.save(3, state(3, size=100_000))
checkpoints.close()
assert is_state(checkpoints.newest().load(), 3)
"""


def may_mount() -> bool:
    unshare = shutil.which("unshare")
    return unshare is not None and subprocess.run([unshare, "-rm", "true"], capture_output=True).returncode == 0


@pytest.mark.skipif(not may_mount(), reason="no private tmpfs can be mounted here")
@pytest.mark.parametrize("how", ["sync", "async"])
def test_a_full_disk_fails_the_save_and_nothing_else(tmp_path, how):
    """A real disk of 16 MB, on which a state of 1.6 MB fits and one of 24 MB does not."""
    shell = f'mount -t tmpfs -o size=16m none "{tmp_path}" && exec "{sys.executable}" -c "$0" "{tmp_path}/c" {how}'
    done = subprocess.run(["unshare", "-rm", "sh", "-c", shell, FILL], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    wanted = "step 2 was not saved: __0_0.distcp could not be written: No space left on device; older checkpoints are"
    assert done.stdout.startswith(wanted), done.stdout


class FullDisk(io.FileIO):
    """A file of which not one byte reaches the disk."""

    def write(self, data: Any) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("name", ["__0_0.distcp", ".metadata.tmp", "state.json", "MANIFEST"])
def test_a_disk_that_fills_up_at_any_file_fails_the_save(checkpoints, folder, monkeypatch, name):
    checkpoints.save(1, state(1))

    def open_file(path: Path, mode: str, **options: Any) -> Any:
        full = mode == "xb" and path.name == name
        return io.BufferedWriter(FullDisk(path, mode)) if full else open(path, mode, **options)

    monkeypatch.setattr(files, "open", open_file, raising=False)
    with pytest.raises(CheckpointError, match=rf"step 2 was not saved: {name} could not be written: No space left"):
        checkpoints.save(2, state(2))
    monkeypatch.undo()
    assert [path.name for path in folder.glob("*step-*")] == ["step-000000001"]
    assert checkpoints.newest().step == 1


# ------------------------------------------------------------------------------------------- errors of the disk


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_an_entry_that_no_thread_wrote_is_missed(checkpoints, folder, monkeypatch):
    """DCP drops what goes wrong in its helper threads; here they are switched on, and fail."""

    class Threads(writer._Writer):
        def __init__(self, path: Path) -> None:
            super().__init__(path)
            self.thread_count = 4

    create = writer._Files.create_stream

    @contextmanager
    def failing_in_helpers(self, path, mode):
        if threading.current_thread() is not threading.main_thread():
            raise OSError(errno.EIO, "Input/output error")
        with create(self, path, mode) as stream:
            yield stream

    monkeypatch.setattr(writer, "_Writer", Threads)
    monkeypatch.setattr(writer._Files, "create_stream", failing_in_helpers)
    with pytest.raises(
        CheckpointError, match=r"step 1 was not saved: \d+ planned entries were not written, among them"
    ):
        checkpoints.save(1, state(1, tensors=12))
    assert not list(folder.glob("*step-*"))


@pytest.mark.parametrize("call", ["fsync", "rename"])
def test_a_sync_or_rename_that_fails_fails_the_save(checkpoints, folder, monkeypatch, call):
    checkpoints.save(5, state(5))
    before = {path: path.read_bytes() for path in (folder / "step-000000005").iterdir()}

    works = getattr(os, call)

    def failing(*arguments):
        if call == "fsync" or Path(arguments[1]).name.startswith("step-"):
            raise OSError(errno.EIO, "Input/output error")
        return works(*arguments)

    monkeypatch.setattr(os, call, failing)
    with pytest.raises(CheckpointError, match=r"step 5 was not saved: .*Input/output error"):
        checkpoints.save(5, state(6))
    monkeypatch.undo()
    assert [path.name for path in folder.glob("*step-*")] == ["step-000000005"]
    assert {path: path.read_bytes() for path in (folder / "step-000000005").iterdir()} == before
    assert is_state(checkpoints.newest().load(), 5)


# ------------------------------------------------------------------------------------------- power


def test_everything_is_synced_before_the_checkpoint_has_its_name(checkpoints, folder, monkeypatch):
    """Every file with all its bytes, then their folder, then the rename, then the folder above; then it is saved."""
    events: list[tuple[str, str, int]] = []
    sync, rename = os.fsync, os.rename

    def spy_sync(descriptor):
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        events.append(("sync", path.name, os.fstat(descriptor).st_size if path.is_file() else -1))
        sync(descriptor)

    def spy_rename(source, target):
        events.append(("rename", Path(target).name, -1))
        rename(source, target)

    checkpoints.claim()
    monkeypatch.setattr(os, "fsync", spy_sync)
    monkeypatch.setattr(store.os, "rename", spy_rename)
    checkpoints.save(1, state(1))
    monkeypatch.undo()
    named = events.index(("rename", "step-000000001", -1))
    synced = [(name.removesuffix(".tmp"), size) for what, name, size in events[:named] if what == "sync"]
    here = {(path.name, path.stat().st_size) for path in (folder / "step-000000001").iterdir()}
    assert set(synced[:-1]) == here
    assert synced[-1][0].startswith(".draft-step-000000001")
    assert events[named + 1 :] == [("sync", "checkpoints", -1)]


# ------------------------------------------------------------------------------------------- malice


class Evil:
    """Leaves a mark when it is unpickled."""

    def __init__(self, canary: Path) -> None:
        self.canary = canary

    def __reduce__(self):
        return os.mkdir, (str(self.canary),)


def seal(folder: Path) -> None:
    """What an attacker would do: hashes that match."""
    step = int(folder.name.split("-")[1])
    named = {path.name: fingerprint(path) for path in folder.iterdir() if path.name != "MANIFEST"}
    (folder / "MANIFEST").unlink(missing_ok=True)
    write_manifest(folder, Manifest(step, 1, torch.__version__, named))


def refused(checkpoints: Checkpoints) -> str:
    with pytest.raises(CheckpointError) as error:
        checkpoints.newest().load()
    return str(error.value)


def test_the_canary_would_sing(tmp_path):
    pickle.loads(pickle.dumps(Evil(tmp_path / "canary")))
    assert (tmp_path / "canary").exists()


@pytest.mark.parametrize("name", ["MANIFEST", ".metadata", "state.json", "__0_0.distcp"])
@pytest.mark.parametrize("form", ["pickle", "torch.save"])
def test_a_pickle_in_place_of_a_file_is_not_executed(checkpoints, tmp_path, name, form):
    checkpoints.save(1, state(1))
    path = checkpoints.newest().path / name
    if form == "pickle":
        path.write_bytes(pickle.dumps(Evil(tmp_path / "canary")))
    else:
        with open(path, "wb") as file:
            torch.save(Evil(tmp_path / "canary"), file)
    if name != "MANIFEST":
        seal(path.parent)
    assert refused(checkpoints)
    assert not (tmp_path / "canary").exists()


def test_a_payload_inside_the_metadata_is_not_executed(checkpoints, tmp_path):
    checkpoints.save(1, state(1))
    folder = checkpoints.newest().path
    metadata = pickle.loads((folder / ".metadata").read_bytes())
    metadata.planner_data = Evil(tmp_path / "canary")
    (folder / ".metadata").write_bytes(pickle.dumps(metadata))
    seal(folder)
    assert ".metadata names posix.mkdir, which no checkpoint of tensors needs" in refused(checkpoints)
    assert not (tmp_path / "canary").exists()


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_a_tensor_that_is_a_pickle_is_not_loaded(checkpoints, tmp_path):
    """Stock DCP keeps what is not a tensor as a pickle, and executes it on load."""
    checkpoints.save(1, {"w": torch.zeros(4)})
    folder = checkpoints.newest().path
    shutil.copy(folder / "state.json", tmp_path)
    shutil.rmtree(folder)
    dcp.save({"w": Evil(tmp_path / "canary")}, checkpoint_id=folder)
    shutil.copy(tmp_path / "state.json", folder)
    seal(folder)
    assert ".metadata names" in refused(checkpoints)
    assert not (tmp_path / "canary").exists()


def test_a_file_outside_of_the_checkpoint_is_not_read(checkpoints):
    checkpoints.save(1, state(1))
    folder = checkpoints.newest().path
    metadata = pickle.loads((folder / ".metadata").read_bytes())
    for info in metadata.storage_data.values():
        info.relative_path = "../../elsewhere"
    (folder / ".metadata").write_bytes(pickle.dumps(metadata))
    seal(folder)
    assert "points to '../../elsewhere', which is not part of the checkpoint" in refused(checkpoints)


LONG = (3 << 30).to_bytes(8, "little")
BOMBS = {
    "a memo of 150 million entries": (
        b"\x80\x02Nr\x80\xd1\xf0\x08.",
        "takes more than 256.00 MiB of memory to unpickle",
    ),
    "an index of a memo as text": (b"Np900000000\n.", "takes more than 256.00 MiB of memory to unpickle"),
    "the hash of tuples of tuples": (b"\x80\x04})" + b"2\x86" * 60 + b"Ns.", "cannot be unpickled in 3 seconds"),
    "a key of nested tuples": (b"\x80\x04})" + b"\x85" * 3_000_000 + b"Ns.", "cannot be unpickled in 5 seconds"),
    "the hash of an argument": (
        b"\x80\x04ctorch.serialization\n_get_layout\n)" + b"2\x86" * 60 + b"\x85R.",
        "cannot be unpickled in 3 seconds",
    ),
    "a text longer than the file": (
        b"\x80\x04\x8d" + LONG + b"x.",
        "takes more than 256.00 MiB",
    ),
    "bytes longer than the file": (
        b"\x80\x04\x8e" + LONG + b"x.",
        "takes more than 256.00 MiB",
    ),
    "a frame longer than the file": (
        b"\x80\x04\x95" + LONG + b"N.",
        "takes more than 256.00 MiB",
    ),
    "lists in lists": (b"\x80\x04" + b"]" * 1_000_000 + b"a" * 999_999 + b".", "cannot be read"),
}


@pytest.mark.sweep
@pytest.mark.parametrize("bomb", BOMBS)
def test_a_pickle_that_asks_for_all_memory_or_time_is_refused(checkpoints, bomb):
    """The first has nine bytes; unpickled in this process, it took 2.3 GB and 17 s. The third took for ever."""
    content, words = BOMBS[bomb]
    checkpoints.save(1, state(1))
    folder = checkpoints.newest().path
    (folder / ".metadata").write_bytes(content)
    seal(folder)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert words in refused(checkpoints)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300_000  # KiB


def test_sizes_and_paths_of_other_types_are_refused(checkpoints):
    """torch would print them in its errors; the text of these tuples has 2**60 characters."""
    bomb = ()
    for _ in range(60):
        bomb = (bomb, bomb)
    for change, words in (
        (lambda found: setattr(next(iter(found.storage_data.values())), "relative_path", bomb), "points to a tuple"),
        (
            lambda found: setattr(next(iter(found.state_dict_metadata.values())), "size", bomb),
            "something else than tensors",
        ),
        (lambda found: setattr(next(iter(found.state_dict_metadata.values())).chunks[0], "sizes", bomb), "not torch's"),
    ):
        checkpoints.save(1, state(1))
        folder = checkpoints.newest().path
        metadata = pickle.loads((folder / ".metadata").read_bytes())
        change(metadata)
        (folder / ".metadata").write_bytes(pickle.dumps(metadata))
        seal(folder)
        assert words in refused(checkpoints)


def test_the_metadata_names_what_we_know_and_nothing_else(checkpoints):
    """If this fails, torch changed what it writes: look at the class, and allow it if it cannot do anything."""
    named: set[tuple[str, str]] = set()

    class Recorder(pickle.Unpickler):
        def find_class(self, module: str, name: str) -> Any:
            named.add((module, name))
            return super().find_class(module, name)

    dtypes = [torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64, torch.float8_e4m3fn]
    checkpoints.save(1, {str(dtype): torch.zeros(3, dtype=dtype) for dtype in dtypes})
    with open(checkpoints.newest().path / ".metadata", "rb") as file:
        Recorder(file).load()
    known = {(module, name) for module, names in reader.ALLOWED.items() for name in names}
    known |= {("torch", str(dtype).removeprefix("torch.")) for dtype in dtypes}
    assert named == known, (
        f"torch {torch.__version__} writes other classes into .metadata than surefoot.checkpoint.reader.ALLOWED lists: "
        f"new {sorted(named - known)}, gone {sorted(known - named)}"
    )
