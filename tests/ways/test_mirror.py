"""A copy elsewhere: a run whose disk is gone resumes from its mirror, to the same bits."""

import dataclasses
import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

import surefoot
from surefoot.checkpoint import mirror as mirrors
from surefoot.checkpoint.entries import MARKER, files_of, marker_of
from surefoot.checkpoint.files import Fingerprint, fingerprint
from surefoot.checkpoint.remote import Remote
from surefoot.errors import CheckpointError, MissingPackage, RecipeError, RunError
from tests.mirrors import PYTHON, Proxy, copied, couriers_of, entries_of, s3_server, steps_of, wipe
from tests.ranks import Case, on_ranks
from tests.resumed import final_state, told, train_to
from tests.waiting import until

pytestmark = pytest.mark.sweep


@pytest.fixture(scope="module")
def server():
    with s3_server() as settings:
        yield settings


@pytest.fixture
def s3(server, monkeypatch, request) -> str:
    """A mirror in a bucket of its own folder."""
    for name, value in server.items():
        monkeypatch.setenv(name, value)
    return f"s3://bucket/{request.node.name}"


@pytest.fixture
def proxy(server, s3, monkeypatch):
    through = Proxy(server["AWS_ENDPOINT_URL"])
    monkeypatch.setenv("AWS_ENDPOINT_URL", through.url)
    yield through
    through.close()


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The run that nobody disturbs, without a mirror."""
    return surefoot.train(copied(), path=str(tmp_path_factory.mktemp("alone") / "run"))


def assert_same(run, alone) -> None:
    assert run.status == "finished"
    assert told(run) == told(alone)
    assert final_state(run) == final_state(alone)
    assert run.weights.read_bytes() == alone.weights.read_bytes()


def kinds(run) -> list[str]:
    return [event.kind for event in run.happened()]


def text_of(run, kind: str) -> str:
    return next(event.text for event in run.happened() if event.kind == kind)


def stopped(url: str, folder: Path, *, at: int = 8) -> None:
    """A run that failed after a step, and whose disk is gone. Its mirror is not."""
    train_to(copied(mirror=url), folder, at)
    wipe(folder)


# ------------------------------------------------------------------------------------------- round trips


def test_a_wiped_run_resumes_from_s3_to_the_same_bits(tmp_path, s3, alone):
    train_to(copied(mirror=s3), tmp_path / "run", 7)
    assert steps_of(s3)[0] == 6
    wipe(tmp_path / "run")
    run = surefoot.train(copied(mirror=s3), path=str(tmp_path / "elsewhere" / "run"))
    assert_same(run, alone)
    assert run.starts == 2
    assert text_of(run, "restored") == f"step-000000006, from {s3}"
    assert text_of(run, "resumed") == "start 2, from step-000000006"
    assert text_of(run, "mirrored") == f"{s3} holds step-000000012 and the weights"


def test_a_finished_run_comes_back_with_its_weights(tmp_path, alone):
    url = f"file://{tmp_path}/copy"
    surefoot.train(copied(mirror=url), path=str(tmp_path / "run"))
    before = Remote(url).sizes()
    wipe(tmp_path / "run")
    run = surefoot.train(copied(mirror=url), path=str(tmp_path / "run"))
    assert_same(run, alone)
    assert run.starts == 1
    assert {name for name in Remote(url).sizes() if "/" in name} == {name for name in before if "/" in name}
    again = surefoot.train(copied(mirror=url), path=str(tmp_path / "run"))
    assert kinds(again) == kinds(run)  # nothing is left to copy, nothing is told


def test_a_run_that_finished_while_its_last_checkpoint_was_copied_gets_its_weights(tmp_path, alone):
    """Its run.json, copied late, says that it has finished; but the weights were never copied."""
    url = f"file://{tmp_path}/copy"
    surefoot.train(copied(mirror=url), path=str(tmp_path / "run"))
    wipe(tmp_path / "run")
    remote, last = Remote(url), newest(url)
    finished = next(name for name in entries_of(url) if name.startswith("finished."))
    late = remote.read(f"{finished}/run.json")
    files = files_of(remote.read(f"{last}/{MARKER}"))
    remote.write(f"{last}/run.json", late)
    remote.write(
        f"{last}/{MARKER}", marker_of({**files, "run.json": fingerprint(tmp_path / "copy" / last / "run.json")})
    )
    remote.remove([f"{finished}/{MARKER}"])
    assert_same(surefoot.train(copied(mirror=url), path=str(tmp_path / "run")), alone)


def test_a_mirror_may_come_later_and_change(tmp_path, alone):
    """It is no part of what a run is identified by."""
    train_to(copied(), tmp_path / "run", 5)
    train_to(copied(mirror=f"file://{tmp_path}/one"), tmp_path / "run", 7)
    train_to(copied(mirror=f"file://{tmp_path}/two"), tmp_path / "run", 9)
    assert (steps_of(f"file://{tmp_path}/one")[0], steps_of(f"file://{tmp_path}/two")[0]) == (6, 8)
    wipe(tmp_path / "run")
    assert_same(surefoot.train(copied(mirror=f"file://{tmp_path}/two"), path=str(tmp_path / "run")), alone)


def test_the_last_few_are_kept(tmp_path):
    url = f"file://{tmp_path}/copy"
    Remote(url).write("step-000000001.1-00000000/checkpoint/__0_0.distcp", b"cut by a kill")
    Remote(url).write("step-000000001.1-00000000/run.json", b"{}")
    Remote(url).write("notes/mine.txt", b"not ours")
    run = surefoot.train(copied(mirror=url), path=str(tmp_path / "run"))
    found = entries_of(url)
    assert all(found.values())
    assert len(steps_of(url)) <= 2
    assert steps_of(url)[0] == 12
    assert sum(name.startswith("finished.") for name in found) == 1
    assert {path.name.partition(".")[0] for path in (tmp_path / "copy").iterdir() if path.is_dir()} == {
        *(name.partition(".")[0] for name in found), "notes",
    }  # fmt: skip
    assert run.status == "finished"


def test_two_ranks_resume_from_a_mirror(tmp_path):
    """One rank fetches; the others wait."""
    url = f"file://{tmp_path}/copy"
    starts = {"alone": (None, None), "parts": (url, 7), "elsewhere": (url, None)}
    cases = [Case("tests.mirrors", "trained", 2, (str(tmp_path / name), *how)) for name, how in starts.items()]
    assert on_ranks(cases, tmp_path) == [["finished"] * 2, ["stopped"] * 2, ["finished"] * 2]
    elsewhere, alone = surefoot.read_run(tmp_path / "elsewhere"), surefoot.read_run(tmp_path / "alone")
    assert text_of(elsewhere, "restored") == f"step-000000006, from {url}"
    assert told(elsewhere) == told(alone)
    assert elsewhere.weights.read_bytes() == alone.weights.read_bytes()


# ------------------------------------------------------------------------------------------- damage


def newest(url: str) -> str:
    return next(name for name in entries_of(url) if name.startswith("step-"))


def test_a_copy_without_its_marker_is_never_taken(tmp_path, alone):
    url = f"file://{tmp_path}/copy"
    stopped(url, tmp_path / "run")
    Remote(url).remove([f"{newest(url)}/{MARKER}"])
    whole = steps_of(url)  # a slow machine has copied fewer of them when the run stops
    run = surefoot.train(copied(mirror=url), path=str(tmp_path / "run"))
    assert_same(run, alone)
    assert f"step-{whole[0]:09}" in text_of(run, "restored")


@pytest.mark.parametrize("name", ["checkpoint/__0_0.distcp", "log.jsonl", "run.json", MARKER])
def test_a_damaged_object_is_named_and_the_one_before_is_taken(tmp_path, s3, alone, name):
    stopped(s3, tmp_path / "run")
    damaged, remote = newest(s3), Remote(s3)
    content = bytearray(remote.read(f"{damaged}/{name}"))
    content[len(content) // 2] ^= 1
    remote.write(f"{damaged}/{name}", bytes(content))
    run = surefoot.train(copied(mirror=s3), path=str(tmp_path / "run"))
    assert_same(run, alone)
    assert damaged in text_of(run, "mirror-rejected")
    assert damaged not in entries_of(s3)


def test_a_cut_object_is_found_before_it_is_fetched(tmp_path, alone):
    url = f"file://{tmp_path}/copy"
    stopped(url, tmp_path / "run")
    Remote(url).write(f"{newest(url)}/checkpoint/state.json", b"{")
    run = surefoot.train(copied(mirror=url), path=str(tmp_path / "run"))
    assert_same(run, alone)
    assert "state.json has 1 bytes instead of" in text_of(run, "mirror-rejected")


def test_a_mirror_with_damaged_checkpoints_only_is_refused(tmp_path):
    url = f"file://{tmp_path}/copy"
    stopped(url, tmp_path / "run")
    for name in entries_of(url):
        content = Remote(url).read(f"{name}/checkpoint/state.json")
        Remote(url).write(f"{name}/checkpoint/state.json", content[::-1])
    with pytest.raises(CheckpointError, match=r"every checkpoint in .*copy is damaged:\n  step-000000008"):
        surefoot.train(copied(mirror=url), path=str(tmp_path / "run"))
    assert {path.name for path in (tmp_path / "run").iterdir()} <= {"lock"}


@pytest.mark.parametrize(
    "name", ["../escaped", "checkpoint/../../../escaped", "{tmp}/escaped", "checkpoint/escaped", "lock"]
)
def test_names_in_a_mirror_are_data(tmp_path, name):
    """Nothing outside the run's folder is written, and nothing in it that is no part of a run."""
    url = f"file://{tmp_path}/copy"
    stopped(url, tmp_path / "deep" / "er" / "run")
    name, remote = name.format(tmp=tmp_path), Remote(url)
    for entry in entries_of(url):
        files = files_of(remote.read(f"{entry}/{MARKER}"))
        remote.write(f"{entry}/{MARKER}", marker_of({**files, name: Fingerprint(0, "0" * 32)}))
    with pytest.raises(CheckpointError, match="which is not a file of a run"):
        surefoot.train(copied(mirror=url), path=str(tmp_path / "deep" / "er" / "run"))
    assert not list(tmp_path.rglob("*escaped*"))


def test_a_restore_that_was_cut_begins_again(tmp_path, alone):
    url = f"file://{tmp_path}/copy"
    stopped(url, tmp_path / "run")
    (tmp_path / "run" / ".restored" / "run").mkdir(parents=True)
    (tmp_path / "run" / "checkpoints" / "step-000000099").mkdir(parents=True)
    (tmp_path / "run" / "log.jsonl").write_text("half\n")
    with pytest.raises(RunError, match="is not empty and holds no run"):
        surefoot.train(copied(), path=str(tmp_path / "run"))
    assert_same(surefoot.train(copied(mirror=url), path=str(tmp_path / "run")), alone)
    assert not (tmp_path / "run" / ".restored").exists()


# ------------------------------------------------------------------------------------------- refusals


def test_another_recipe_is_refused_by_name(tmp_path):
    url = f"file://{tmp_path}/copy"
    stopped(url, tmp_path / "run")
    with pytest.raises(RunError, match=r"copy holds a run of another recipe: micro_batch_size was 4 and is 8"):
        surefoot.train(dataclasses.replace(copied(mirror=url), micro_batch_size=8), path=str(tmp_path / "run"))
    with pytest.raises(RunError, match=r"copy holds a run of another recipe: it is copied, not other"):
        surefoot.train(dataclasses.replace(copied(mirror=url), name="other"), path=str(tmp_path / "run"))
    assert {path.name for path in (tmp_path / "run").iterdir()} <= {"lock"}


def test_another_recipe_is_refused_before_anything_was_copied(tmp_path):
    url = f"file://{tmp_path}/copy"
    train_to(copied(mirror=url), tmp_path / "one", 1)
    assert steps_of(url) == []
    with pytest.raises(RunError, match="holds a run of another recipe: micro_batch_size"):
        surefoot.train(dataclasses.replace(copied(mirror=url), micro_batch_size=8), path=str(tmp_path / "two"))
    wipe(tmp_path / "one")
    assert surefoot.train(copied(mirror=url), path=str(tmp_path / "one")).starts == 1  # from step 0: nothing is lost


def test_another_run_of_the_same_recipe_is_refused(tmp_path):
    url = f"file://{tmp_path}/copy"
    train_to(copied(), tmp_path / "other", 5)
    stopped(url, tmp_path / "run")
    with pytest.raises(RunError, match=r"copy holds another run, of copied, at step 8"):
        surefoot.train(copied(mirror=url), path=str(tmp_path / "other"))
    with pytest.raises(RunError, match="already holds a run; name another mirror, or use --resume auto"):
        surefoot.train(copied(mirror=url), path=str(tmp_path / "new"), resume="never")


def test_a_folder_that_is_behind_its_mirror_is_refused(tmp_path):
    url = f"file://{tmp_path}/copy"
    train_to(copied(mirror=url), tmp_path / "here", 4)
    surefoot.train(copied(mirror=url), path=str(tmp_path / "elsewhere"))
    with pytest.raises(RunError, match=r"here has checkpoints up to step 4, its mirror .* up to step 12"):
        surefoot.train(copied(mirror=url), path=str(tmp_path / "here"))


@pytest.mark.parametrize("url", ["s3://me:secret@bucket/a", "https://host/a?token=secret"])
def test_credentials_in_a_url_are_refused_and_not_kept(tmp_path, url):
    with pytest.raises(RecipeError, match="put credentials into the environment") as refused:
        surefoot.train(copied(mirror=url), path=str(tmp_path / "run"))
    assert "secret" not in str(refused.value)
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and b"secret" in path.read_bytes()]


def test_a_missing_package_is_reported_before_the_first_step(tmp_path, monkeypatch):
    (tmp_path / "fsspec.py").write_text("raise ImportError('No module named fsspec')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    with pytest.raises(MissingPackage, match=r"pip install fsspec s3fs"):
        surefoot.train(copied(mirror="s3://bucket/a"), path=str(tmp_path / "run"))
    assert not (tmp_path / "run" / "run.json").exists()


def test_an_unknown_protocol_is_refused(tmp_path):
    with pytest.raises(RunError, match="is not a URL that fsspec knows"):
        surefoot.train(copied(mirror="s4://bucket/a"), path=str(tmp_path / "run"))


# ------------------------------------------------------------------------------------------- networks


def test_a_mirror_out_of_reach_is_reported_before_the_first_step(tmp_path, s3, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with pytest.raises(RunError, match="cannot reach the mirror"):
        surefoot.train(copied(mirror=s3), path=str(tmp_path / "run"))
    assert not (tmp_path / "run" / "run.json").exists()


def test_a_bucket_that_is_not_there_is_reported_and_not_made(tmp_path, s3):
    with pytest.raises(RunError, match=r"cannot write to the mirror .*bucket does not exist"):
        surefoot.train(copied(mirror="s3://mistyped/a"), path=str(tmp_path / "run"))


def test_a_refused_connection_costs_the_copy_and_not_the_run(tmp_path, s3, proxy, alone, monkeypatch):
    monkeypatch.setattr(mirrors, "FINISHED_SECONDS", 1.0)

    def tell(run, row):
        if row.step == 1:
            proxy.mode = "refuse"
            proxy.cut()

    run = surefoot.train(copied(mirror=s3), path=str(tmp_path / "run"), tell=tell)
    assert_same(run, alone)
    assert "mirrored" not in kinds(run)
    said = text_of(run, "mirror-incomplete")
    assert "not the checkpoint step-000000012 nor the weights" in said
    assert "run the same command to try again" in said
    proxy.mode = "pass"
    monkeypatch.setattr(mirrors, "FINISHED_SECONDS", 60.0)
    again = surefoot.train(copied(mirror=s3), path=str(tmp_path / "run"))
    assert text_of(again, "mirrored") == f"{s3} holds step-000000012 and the weights"
    wipe(tmp_path / "run")
    assert_same(surefoot.train(copied(mirror=s3), path=str(tmp_path / "run")), alone)


def test_a_failed_copy_is_told_and_tried_again_with_the_next_checkpoint(tmp_path, alone):
    url, blocked = f"file://{tmp_path}/copy", tmp_path / "copy"

    def tell(run, row):
        if row.step == 1:
            blocked.rename(tmp_path / "away")
            blocked.write_text("a file where the folder was")
        if row.step == 8:
            until(lambda: "mirror-failed" in kinds(run))
            blocked.unlink()
            (tmp_path / "away").rename(blocked)

    run = surefoot.train(copied(mirror=url), path=str(tmp_path / "run"), tell=tell)
    assert_same(run, alone)
    assert "was not copied" in text_of(run, "mirror-failed")
    assert text_of(run, "mirrored").endswith("holds step-000000012 and the weights")


def test_a_stalled_connection_stops_no_step_and_no_save(tmp_path, s3, proxy, alone, monkeypatch):
    monkeypatch.setattr(mirrors, "FINISHED_SECONDS", 1.0)
    proxy.stall_at = "distcp"
    ended = []

    def tell(run, row):
        ended.append(time.monotonic())

    began = time.monotonic()
    run = surefoot.train(copied(mirror=s3), path=str(tmp_path / "run"), tell=tell)
    assert proxy.stalled.is_set()
    assert_same(run, alone)
    assert ended[-1] - ended[0] < 10  # a connection stalls for 15 s before it is given up
    assert time.monotonic() - ended[-1] < 10
    assert "the time was up" in text_of(run, "mirror-incomplete")
    assert time.monotonic() - began < 60


def test_slow_copies_skip_to_the_newest_and_keep_what_they_read(tmp_path, s3, proxy, alone):
    """The checkpoint that is being copied outlives its time on the local disk."""
    proxy.stall_at = "step-000000002"

    def tell(run, row):
        if row.step == 2:
            assert proxy.stalled.wait(180)
        if row.step == 12:
            assert (run.checkpoints / "step-000000002").exists()
            assert not (run.checkpoints / "step-000000006").exists()
            proxy.stall_at = None
            proxy.cut()

    run = surefoot.train(copied(mirror=s3), path=str(tmp_path / "run"), tell=tell)
    assert_same(run, alone)
    assert steps_of(s3) == [12, 2]
    assert kinds(run).count("mirror-failed") == 0  # the library tried again


def test_a_trainer_whose_mirror_was_taken_over_stops_copying(tmp_path, alone):
    url = f"file://{tmp_path}/copy"

    def tell(run, row):
        if row.step == 3:
            until(lambda: steps_of(url) == [2])
            who = {"token": "other", "pid": 7, "host": "elsewhere", "since": "today"}
            Remote(url).write("OWNER", json.dumps(who).encode())

    run = surefoot.train(copied(mirror=url), path=str(tmp_path / "run"), tell=tell)
    assert_same(run, alone)
    assert "taken over by process 7 on elsewhere, since today; surefoot copies nothing more" in text_of(
        run, "mirror-lost"
    )
    assert kinds(run).count("mirror-lost") == 1
    assert steps_of(url) == [2]
    assert "mirrored" not in kinds(run)


# ------------------------------------------------------------------------------------------- kills and signals


def start(url: str, folder: Path, *words: str) -> subprocess.Popen:
    command = [PYTHON, "-m", "surefoot", "train", "tests.mirrors:copied", f"mirror={url}", *words]
    settings = {**os.environ, "OMP_NUM_THREADS": "1"}
    with (folder.parent / "said").open("wb") as said:
        return subprocess.Popen([*command, "--no-plan", "--run", str(folder)], env=settings, stdout=said)


def test_a_kill_within_a_copy_leaves_no_process_and_no_half_checkpoint(tmp_path, s3, proxy, alone):
    trainer = start(s3, tmp_path / "run", "pause=0.05")
    until(lambda: steps_of(s3))
    proxy.stall_at = "/log.jsonl"  # the last but three of its files
    assert proxy.stalled.wait(180)
    trainer.kill()
    trainer.wait()
    until(lambda: not couriers_of(trainer.pid), seconds=5)
    proxy.stall_at = None
    assert len(steps_of(s3)) < len(entries_of(s3))  # one is not whole, and never will be
    wipe(tmp_path / "run")
    run = surefoot.train(
        surefoot.load_recipe("tests.mirrors:copied", [f"mirror={s3}", "pause=0.05"]), path=str(tmp_path / "run")
    )
    assert_same(run, alone)
    assert all(entries_of(s3).values())


def test_a_request_to_stop_is_granted_with_the_last_state_copied(tmp_path):
    url = f"file://{tmp_path}/copy"
    trainer = start(url, tmp_path / "run", "max_steps=100000", "save_every=1000000")
    until(lambda: (tmp_path / "run" / "log.jsonl").exists() and (tmp_path / "run" / "log.jsonl").stat().st_size)
    for pid in (trainer.pid, *couriers_of(trainer.pid)):  # as batch systems do: every process of the job
        os.kill(pid, signal.SIGTERM)
    assert trainer.wait(timeout=180) == 75
    last = surefoot.read_run(tmp_path / "run").steps
    assert steps_of(url) == [last]
    assert f"holds step-{last:09}" in " ".join((tmp_path / "said").read_text().split())


def test_a_courier_that_dies_is_replaced(tmp_path, alone):
    url = f"file://{tmp_path}/copy"

    def tell(run, row):
        if row.step == 3:
            until(lambda: steps_of(url) == [2])
            for pid in couriers_of(os.getpid()):
                os.kill(pid, signal.SIGKILL)

    run = surefoot.train(copied(mirror=url), path=str(tmp_path / "run"), tell=tell)
    assert_same(run, alone)
    assert text_of(run, "mirrored").endswith("step-000000012 and the weights")


def test_the_courier_loads_no_torch():
    """It starts within a moment, and takes little memory beside a training."""
    code = "import sys, surefoot.checkpoint.courier; sys.exit('torch' in sys.modules)"
    assert subprocess.run([PYTHON, "-c", code]).returncode == 0
