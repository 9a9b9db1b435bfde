"""A checkpoint is plain files of its own folder, whatever its manifest says."""

import json
import os
import shutil
from dataclasses import replace

import pytest
import torch

from surefoot.checkpoint.files import fingerprint
from surefoot.checkpoint.manifest import Manifest, read_manifest, write_manifest
from surefoot.errors import CheckpointError
from tests.checkpoint.conftest import state


def saved(checkpoints):
    checkpoints.save(1, state(1))
    return checkpoints.newest().path


def resealed(folder, files):
    """A manifest of other files, under a hash that is right: somebody meant it."""
    manifest = read_manifest(folder)
    (folder / "MANIFEST").unlink()
    write_manifest(folder, replace(manifest, files=files))


def refused(checkpoints):
    with pytest.raises(CheckpointError) as caught:
        checkpoints.newest()
    return str(caught.value)


@pytest.mark.parametrize("name", ["../elsewhere", "{absolute}", "..", "sub/../../elsewhere"])
def test_a_manifest_cannot_name_what_is_outside_its_folder(name, checkpoints):
    folder = saved(checkpoints)
    outside = folder.parent / "elsewhere"
    outside.write_text("private")
    (folder / "sub").mkdir()
    resealed(folder, {**read_manifest(folder).files, name.format(absolute=outside): fingerprint(outside)})
    assert "leads out of the folder" in refused(checkpoints)


@pytest.mark.parametrize("name", ["MANIFEST", ".metadata", "state.json", "__0_0.distcp"])
@pytest.mark.parametrize("kind", ["a link", "a pipe", "a folder"])
def test_a_checkpoint_is_plain_files(name, kind, checkpoints, tmp_path):
    path = saved(checkpoints) / name
    shutil.move(path, tmp_path / "moved")
    if kind == "a link":
        path.symlink_to(tmp_path / "moved")
    elif kind == "a pipe":
        os.mkfifo(path)
    else:
        path.mkdir()
    assert f"{name} cannot be read: is {kind}, not a plain file" in refused(checkpoints)


@pytest.mark.parametrize("name", ["state.json", ".metadata"])
def test_a_manifest_names_the_files_that_say_what_to_load(name, checkpoints):
    """Else they would be read without their hash."""
    folder = saved(checkpoints)
    resealed(folder, {each: seen for each, seen in read_manifest(folder).files.items() if each != name})
    assert "MANIFEST does not name state.json and .metadata" in refused(checkpoints)


def test_a_manifest_of_endless_size_is_refused(checkpoints):
    folder = saved(checkpoints)
    os.truncate(folder / "MANIFEST", 1 << 40)
    assert "MANIFEST cannot be read: holds 1,099,511,627,776 bytes" in refused(checkpoints)


def test_a_tensor_that_no_memory_can_hold_is_refused(checkpoints, tmp_path):
    from surefoot.checkpoint.consolidate import state_names, write_weights

    folder = saved(checkpoints)
    outline = json.loads((folder / "state.json").read_text())
    text = json.dumps(outline).replace("[1000]", "[1000000000000000]", 1)
    (folder / "state.json").write_text(text)
    manifest = read_manifest(folder)
    assert isinstance(manifest, Manifest)
    resealed(folder, {**manifest.files, "state.json": fingerprint(folder / "state.json")})
    checkpoint = checkpoints.newest()
    with pytest.raises(CheckpointError, match=r"not enough memory for model\.t0"):
        write_weights(checkpoint, state_names(checkpoint), tmp_path, file_bytes=10**9)


def test_a_checkpoint_of_anything_but_a_model_says_so(checkpoints):
    from surefoot.checkpoint.consolidate import state_names

    checkpoints.save(1, {"weights": torch.zeros(1)})
    with pytest.raises(CheckpointError, match="does not describe its model"):
        state_names(checkpoints.newest())
