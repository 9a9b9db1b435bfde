"""Links in a run: checkpoints go to another disk only if the user names it, and nothing is removed through a link."""

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

import surefoot
from surefoot.checkpoint.store import Checkpoints
from surefoot.cli.main import app
from surefoot.errors import RecipeError, RunError
from surefoot.recipe.load import load_recipe
from tests.mirrors import copied, steps_of
from tests.waiting import until


@pytest.fixture
def recipe(small_recipe):
    def made(*words: str):
        given = dict(word.partition("=")[::2] for word in ("max_steps=6", "save_every=1", "keep_last=1", *words))
        return small_recipe("regression", *(f"{name}={value}" for name, value in given.items()))

    return made


def interrupted(recipe, folder: Path, at: int = 2, first=lambda: None) -> Path:
    def interrupt(run, row):
        if row.step == at:
            first()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        surefoot.train(recipe, path=str(folder), tell=interrupt)
    return folder


def copy_is_there(url: str) -> None:
    """Waits until the mirror has a checkpoint: copying goes on beside the training."""
    until(lambda: steps_of(url))


def held(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.fixture
def precious(recipe, tmp_path) -> Path:
    """The checkpoints of another run: this one would prune them."""
    surefoot.train(recipe("keep_last=5"), path=str(tmp_path / "precious"))
    return tmp_path / "precious" / "checkpoints"


def move_and_link(folder: Path, elsewhere: Path) -> None:
    shutil.copytree(folder / "checkpoints", elsewhere, dirs_exist_ok=True)
    shutil.rmtree(folder / "checkpoints")
    (folder / "checkpoints").symlink_to(elsewhere)


# ------------------------------------------------------------------------------------------- the folder


def test_a_link_that_nobody_names_is_refused_and_nothing_is_written_there(recipe, precious, tmp_path):
    folder, before = interrupted(recipe(), tmp_path / "run"), held(precious)
    shutil.rmtree(folder / "checkpoints")
    (folder / "checkpoints").symlink_to(precious)
    for words in ((), (f"checkpoints={tmp_path / 'scratch'}",)):
        with pytest.raises(
            RunError, match=rf"checkpoints is a link to {precious}, which .*\n.*add checkpoints={precious};"
        ):
            surefoot.train(recipe(*words), path=str(folder), accept_change=True)
    assert held(precious) == before
    assert not (tmp_path / "scratch").exists()


def test_the_command_says_what_to_add(tmp_path, precious):
    (tmp_path / "run").mkdir()
    words = ["train", "regression", "max_steps=2", "--no-plan", "--run", str(tmp_path / "run")]
    assert CliRunner().invoke(app, words).exit_code == 0
    shutil.rmtree(tmp_path / "run" / "checkpoints")
    (tmp_path / "run" / "checkpoints").symlink_to(precious)
    done = CliRunner().invoke(app, [*words, "--accept-change"])
    assert isinstance(done.exception, RunError)
    assert "no setting names" in str(done.exception)


def test_a_scratch_disk_that_the_user_names_holds_the_checkpoints(recipe, tmp_path):
    alone = surefoot.train(recipe(), path=str(tmp_path / "alone"))
    named = f"checkpoints={tmp_path / 'scratch'}"
    folder = interrupted(recipe(named), tmp_path / "run")
    assert os.readlink(folder / "checkpoints") == str(tmp_path / "scratch")
    assert [each.step for each in Checkpoints(tmp_path / "scratch")] == [2]
    with pytest.raises(RunError, match="which no setting names"):
        surefoot.train(recipe(), path=str(folder))
    run = surefoot.train(recipe(named), path=str(folder))
    assert run.weights.read_bytes() == alone.weights.read_bytes()
    assert run.knobs["checkpoints"] == str(tmp_path / "scratch")
    assert [each.step for each in Checkpoints(tmp_path / "scratch")] == [6]


def test_a_link_made_by_hand_is_used_if_it_is_named(recipe, tmp_path):
    folder = interrupted(recipe(), tmp_path / "run")
    move_and_link(folder, tmp_path / "scratch")
    assert surefoot.train(recipe(f"checkpoints={tmp_path / 'scratch'}"), path=str(folder)).status == "finished"


def test_a_run_may_itself_be_a_link(recipe, tmp_path):
    folder = interrupted(recipe(), tmp_path / "run")
    (tmp_path / "mine").symlink_to(folder)
    assert surefoot.train(recipe(), path=str(tmp_path / "mine")).status == "finished"


@pytest.mark.parametrize("shape", ["used", "a file", "inside", "folder"])
def test_a_folder_that_cannot_take_the_checkpoints_is_refused(shape, recipe, precious, tmp_path):
    folder, named, before = tmp_path / "run", precious, held(precious)
    if shape == "a file":
        named = tmp_path / "file"
        named.write_text("mine")
    if shape == "inside":
        named = folder / "states"
    if shape == "folder":
        interrupted(recipe(), folder)
    with pytest.raises(RunError, match=r"is not an empty folder|is inside the run|exists, so checkpoints="):
        surefoot.train(recipe(f"checkpoints={named}"), path=str(folder))
    assert held(precious) == before


def test_two_runs_do_not_share_a_folder_even_before_their_first_checkpoint(recipe, tmp_path):
    named = f"checkpoints={tmp_path / 'scratch'}"
    interrupted(recipe(named, "save_every=100"), tmp_path / "one")
    with pytest.raises(RunError, match="is not an empty folder"):
        surefoot.train(recipe(named), path=str(tmp_path / "two"))
    assert surefoot.train(recipe(named), path=str(tmp_path / "one")).status == "finished"


def test_an_emptied_scratch_disk_is_a_run_without_its_checkpoints(recipe, tmp_path):
    named = f"checkpoints={tmp_path / 'scratch'}"
    folder = interrupted(recipe(named), tmp_path / "run", at=3)
    shutil.rmtree(tmp_path / "scratch")
    with pytest.raises(RunError, match="holds no checkpoint, but the run saved step"):
        surefoot.train(recipe(named), path=str(folder))


def test_a_mirror_is_restored_to_the_scratch_disk(tmp_path):
    words = {"mirror": f"file://{tmp_path}/copy", "checkpoints": str(tmp_path / "scratch")}
    alone = surefoot.train(copied(), path=str(tmp_path / "alone"))
    interrupted(replace(copied(), **words), tmp_path / "run", at=7, first=lambda: copy_is_there(words["mirror"]))
    for name in ("run", "scratch"):
        shutil.rmtree(tmp_path / name)
    run = surefoot.train(replace(copied(), **words), path=str(tmp_path / "run"))
    assert "restored" in [each.kind for each in run.happened()]
    assert (tmp_path / "run" / "checkpoints").is_symlink()
    assert list((tmp_path / "scratch").glob("step-*"))
    assert run.weights.read_bytes() == alone.weights.read_bytes()


def test_the_setting_is_text():
    for wrong in (3, ""):
        with pytest.raises(RecipeError, match="must be the path of a folder, or None"):
            replace(load_recipe("regression"), checkpoints=wrong)


# ------------------------------------------------------------------------------------------- below it


@pytest.mark.parametrize("name", ["step-000000099", "step-000000001", ".draft-step-000000009-00000000"])
def test_a_linked_checkpoint_is_rejected_and_removed_without_what_it_leads_to(name, recipe, precious, tmp_path):
    folder, before = interrupted(recipe(), tmp_path / "run"), held(precious)
    (folder / "checkpoints" / name).symlink_to(precious / "step-000000005")
    run = surefoot.train(recipe(), path=str(folder))
    assert held(precious) == before
    rejected = [each.text for each in run.happened() if each.kind == "checkpoint-rejected"]
    assert rejected == ([f"{name}: {name} is a link, not a folder"] if name.endswith("99") else [])
    left = [path.name for path in (folder / "checkpoints").iterdir() if path.is_symlink()]
    assert left == (["step-000000099"] if name.endswith("99") else [])


def test_a_run_with_only_linked_checkpoints_is_refused(recipe, tmp_path):
    folder = interrupted(recipe(), tmp_path / "run")
    [state] = (folder / "checkpoints").glob("step-*")
    shutil.move(state, tmp_path / "moved")
    state.symlink_to(tmp_path / "moved")
    with pytest.raises(surefoot.errors.CheckpointError, match=rf"{state.name} is a link, not a folder"):
        surefoot.train(recipe(), path=str(folder))


def test_pruning_leaves_what_links_inside_a_checkpoint_lead_to(recipe, tmp_path):
    folder = interrupted(recipe(), tmp_path / "run")
    [state] = (folder / "checkpoints").glob("step-*")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").write_text("as it was")
    (state / "folder").symlink_to(tmp_path / "mine")
    (state / "file").symlink_to(tmp_path / "mine" / "file")
    assert surefoot.train(recipe(), path=str(folder)).status == "finished"
    assert not state.exists()
    assert (tmp_path / "mine" / "file").read_text() == "as it was"


@pytest.mark.parametrize("tool", ["tensorboard", "wandb"])
def test_a_writer_does_not_write_through_a_link(tool, recipe, tmp_path):
    pytest.importorskip(tool)
    from surefoot.integrations.writers import open_writers

    folder = interrupted(recipe(), tmp_path / "run")
    (tmp_path / "mine").mkdir()
    (folder / tool).symlink_to(tmp_path / "mine")
    with pytest.warns(UserWarning, match=rf"{tool} failed .*{tool} is a link to"), open_writers([tool]) as tell:
        surefoot.train(recipe(), path=str(folder), tell=tell)
    assert not list((tmp_path / "mine").iterdir())
