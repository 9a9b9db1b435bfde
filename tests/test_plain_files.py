"""A run writes into plain files of its own: never through a link, and never into a pipe that nobody reads."""

import json
import os

import pytest

import surefoot
from surefoot.errors import RunError
from surefoot.plain_files import inside, open_new, open_plain, write_whole
from surefoot.training.guards.watchdog import Watchdog


@pytest.fixture
def stopped(small_recipe, tmp_path):
    """A run that was interrupted after two steps, and its recipe."""

    def interrupt(run, row):
        if row.step == 2:
            raise KeyboardInterrupt

    recipe = small_recipe("regression", "max_steps=4", "save_every=1")
    with pytest.raises(KeyboardInterrupt):
        surefoot.train(recipe, path=str(tmp_path / "run"), tell=interrupt)
    return tmp_path / "run", recipe


@pytest.mark.parametrize("name", ["log.jsonl", "events.jsonl", "lock", "checkpoints/lock"])
def test_what_a_run_appends_to_is_not_a_link(name, stopped, tmp_path):
    folder, recipe = stopped
    elsewhere = tmp_path / "elsewhere"
    elsewhere.touch()
    if (folder / name).exists():
        (folder / name).replace(elsewhere)
    with elsewhere.open("a") as file:
        file.write("precious, and no end of a line")
    before = elsewhere.read_bytes()
    (folder / name).symlink_to(elsewhere)
    with pytest.raises(RunError, match=rf"{name} (cannot be read: )?is a link, not a plain file"):
        surefoot.train(recipe, path=str(folder))
    assert elsewhere.read_bytes() == before


@pytest.mark.parametrize("name", ["events.jsonl", "lock"])
def test_a_pipe_does_not_hold_a_run_up(name, stopped):
    folder, recipe = stopped
    (folder / name).unlink(missing_ok=True)
    os.mkfifo(folder / name)
    with pytest.raises(RunError, match=rf"{name} is (a pipe, not a plain|not an ordinary) file"):
        surefoot.train(recipe, path=str(folder))


@pytest.mark.parametrize("name", [".run.json.part", "run.json", "findings.json", ".plan.json.part"])
def test_what_is_written_whole_replaces_a_link(name, tmp_path):
    precious = tmp_path / "precious"
    precious.write_text("as it was")
    (tmp_path / name).symlink_to(precious)
    final = tmp_path / name.removeprefix(".").removesuffix(".part")
    write_whole(final, "new")
    write_whole(final, "newer")
    assert (precious.read_text(), final.read_text()) == ("as it was", "newer")
    assert not final.is_symlink()


def test_half_a_character_is_written_as_its_escape(tmp_path):
    write_whole(tmp_path / "run.json", '{"name": "\ud800é"}')
    assert json.loads((tmp_path / "run.json").read_text(encoding="utf-8")) == {"name": "\ud800é"}


def test_the_stacks_of_a_hung_step_are_not_written_through_a_link(tmp_path):
    precious = tmp_path / "precious"
    precious.write_text("as it was")
    (tmp_path / "stacks.txt").symlink_to(precious)
    told = []
    watchdog = Watchdog(tmp_path / "stacks.txt", told.append, times=1, least_seconds=0.02)
    with watchdog:
        for _ in range(4):
            watchdog.beat()
        for _ in range(200):
            if told:
                break
            watchdog._stop.wait(0.05)
    assert told
    assert precious.read_text() == "as it was"


def test_a_new_file_is_nobody_elses(tmp_path):
    (tmp_path / "draft").write_text("what a killed process left")
    os.link(tmp_path / "draft", tmp_path / "other")
    with open_new(tmp_path / "draft") as file:
        file.write(b"new")
    assert (tmp_path / "other").read_text() == "what a killed process left"


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "/etc/passwd", "a/b", "a\\b", "a\0b"])
def test_a_name_that_leads_out_of_a_folder_is_refused(name, tmp_path):
    with pytest.raises(OSError, match="leads out of the folder"):
        inside(tmp_path, name)


def test_devices_are_not_opened():
    with pytest.raises(OSError, match="is a device, not a plain file"):
        open_plain("/dev/zero")
