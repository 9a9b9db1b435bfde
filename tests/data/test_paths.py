"""A manifest fixes what a corpus is: it names files of its own folder, each with its digest, and is never missing."""

import os
import re
import shutil
import struct
import subprocess
import sys
import textwrap
from dataclasses import replace

import numpy as np
import pytest

from surefoot import load_recipe
from surefoot.data.formats import adopt, open_corpus
from surefoot.data.shards import read_manifest, write_manifest
from surefoot.data.windows import TokenWindows
from surefoot.errors import DataError
from tests.data.corpora import megatron, random_documents, write_corpus


@pytest.fixture
def corpus(tmp_path):
    write_corpus(tmp_path / "corpus", {"a": random_documents(30, 300), "a.held-out": random_documents(5, 300, seed=1)})
    return tmp_path / "corpus"


def resealed(folder, **changes):
    """The manifest with its first shard changed, under a digest that is right: somebody meant it."""
    manifest = read_manifest(folder)
    first, *others = manifest.shards
    write_manifest(folder, replace(manifest, shards=(replace(first, **changes), *others)))


def read(folder):
    corpus = open_corpus(folder).only("train")
    corpus.identity()
    return TokenWindows(corpus, 16)[0]


@pytest.mark.parametrize(
    "name", ["../elsewhere/a.ds", "{folder}/../elsewhere/a.ds", "sub/../../elsewhere/a.ds", "..", ""]
)
def test_a_manifest_cannot_name_what_is_outside_its_folder(name, corpus):
    shutil.copytree(corpus, corpus.parent / "elsewhere")
    (corpus / "sub").mkdir()
    resealed(corpus, file=name.format(folder=corpus))
    with pytest.raises(DataError, match="leads out of the folder"):
        read(corpus)


@pytest.mark.parametrize("which", ["a.ds", "a.ds.pages", "manifest.json"])
@pytest.mark.parametrize("kind", ["a link", "a pipe", "a device", "a folder"])
def test_a_corpus_is_plain_files(which, kind, corpus):
    path = corpus / which
    path.rename(corpus.parent / which)
    if kind == "a link":
        path.symlink_to(corpus.parent / which)
    elif kind == "a pipe":
        os.mkfifo(path)
    elif kind == "a folder":
        path.mkdir()
    else:
        try:
            os.mknod(path, 0o600 | 0o020000, os.makedev(1, 5))  # /dev/zero
        except OSError:
            pytest.skip("only root makes devices")
    with pytest.raises(DataError, match=f"{re.escape(str(path))} cannot be read: is {kind}"):
        read(corpus)


def test_a_shard_that_nobody_has_hashed_is_refused(corpus):
    resealed(corpus, digest="")
    with pytest.raises(DataError, match=r"has no digest for a\.ds, so it cannot be verified"):
        open_corpus(corpus)


def test_ends_of_documents_that_nobody_has_hashed_are_refused(corpus):
    resealed(corpus, ends_digest="")
    with pytest.raises(DataError, match=r"has no ends_digest for a\.ds"):
        open_corpus(corpus)


@pytest.mark.parametrize("changes", [{"documents": -1}, {"tokens": 0}, {"tokens": 2**80}, {"offset": -2}])
def test_counts_that_no_file_can_have_are_refused(changes, corpus):
    resealed(corpus, **changes)
    with pytest.raises(DataError, match="with impossible numbers"):
        open_corpus(corpus)


def test_a_corpus_that_has_lost_its_manifest_is_refused(corpus):
    (corpus / "manifest.json").unlink()
    with pytest.raises(DataError, match=r"has no manifest\.json, so nothing says which files to train on"):
        open_corpus(corpus)
    with pytest.raises(DataError, match=r"has no manifest\.json"):
        load_recipe("gpt", [f"corpus={corpus}"])


def test_a_corpus_of_surefoot_gets_its_manifest_back_by_the_same_command(tmp_path):
    pytest.importorskip("datatrove")
    from surefoot.data.tokenize import tokenize

    (tmp_path / "texts").mkdir()
    for number in range(20):
        (tmp_path / "texts" / f"{number}.txt").write_text(f"{number} bottles of beer on the wall\n" * 5)
    made = tokenize([str(tmp_path / "texts")], tmp_path / "corpus", held_out=0.3)
    (tmp_path / "corpus" / "manifest.json").unlink()
    with pytest.raises(DataError, match="held-out text would be trained on"):
        open_corpus(tmp_path / "corpus")
    with pytest.raises(DataError, match="run the same command again"):
        adopt(tmp_path / "corpus")
    assert tokenize([str(tmp_path / "texts")], tmp_path / "corpus", held_out=0.3) == made


def test_what_has_a_manifest_is_not_hashed_again(corpus):
    with pytest.raises(DataError, match="has a manifest"):
        adopt(corpus)


def test_one_file_of_a_corpus_is_verified_too(corpus):
    one = open_corpus(corpus / "a.ds")
    assert one.verified
    assert [shard.file for shard in one.manifest.shards] == ["a.ds"]


def test_the_index_of_megatron_is_verified(tmp_path):
    path = megatron(tmp_path)
    adopt(tmp_path)
    content = bytearray((tmp_path / "text.idx").read_bytes())
    content[60] ^= 1
    (tmp_path / "text.idx").write_bytes(content)
    with pytest.raises(DataError, match=r"text\.idx is damaged: page 0"):
        open_corpus(path).ends(0)


def test_an_index_of_megatron_that_promises_more_than_it_holds_is_refused(tmp_path):
    path = megatron(tmp_path)
    content = bytearray((tmp_path / "text.idx").read_bytes())
    content[18:26] = struct.pack("<Q", 10**15)
    (tmp_path / "text.idx").write_bytes(content)
    with pytest.raises(DataError, match="its header needs"):
        open_corpus(path, verify=False).ends(0)


def test_what_is_named_like_tokens_and_is_no_file_is_refused(tmp_path):
    (tmp_path / "tokens.npy").mkdir()
    with pytest.raises(DataError, match=r"tokens\.npy is a folder, not a plain file"):
        adopt(tmp_path)
    (tmp_path / "tokens.npy").rmdir()
    np.arange(100, dtype="<u2").tofile(tmp_path / "tokens.bin")
    os.mkfifo(tmp_path / "tokens.idx")
    with pytest.raises(DataError, match=r"tokens\.idx is a pipe"):
        adopt(tmp_path)
    (tmp_path / "bad.npy").write_bytes(b"\x93NUMPY\1\0\xff\xff{")
    with pytest.raises(DataError, match="no array header"):
        open_corpus(tmp_path / "bad.npy", verify=False)


CUT = """
import os, sys
from surefoot.data.document_ends import open_ends
from surefoot.data.formats import open_corpus
from surefoot.data.packing import PackedDocuments
from surefoot.data.pages import MappedFile
from surefoot.data.windows import TokenWindows
from surefoot.errors import DataError

folder, which, how = sys.argv[1:]
corpus = open_corpus(folder, verify=how != "unverified").only("train")
reads = {
    "windows": lambda: TokenWindows(corpus, 64),
    "unverified": lambda: TokenWindows(corpus, 64),
    "tokens": lambda: None,
    "ends": lambda: None,
    "packed": lambda: PackedDocuments(corpus, 64),
}
data = reads[how]()
corpus.tokens(0, 0, 1), corpus.ends(0, 0, 1)
if data is not None:
    data[0]
os.truncate(f"{folder}/{which}", 0 if how in ("ends", "packed") else 4096)
try:
    if data is not None:
        data[len(data) - 1]
    elif how == "tokens":
        corpus.tokens(0, corpus.manifest.shards[0].tokens - 1, 1)
    else:
        corpus.ends(0, corpus.manifest.shards[0].documents - 1, 1)
except DataError as error:
    print(error)
"""


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("which", "how"),
    [
        ("a.ds", "windows"),
        ("a.ds", "unverified"),
        ("a.ds", "tokens"),
        ("a.ds.pages", "windows"),
        ("a.ds.index", "ends"),
        ("packed-64.pieces", "packed"),
    ],
)
def test_a_file_that_is_cut_while_it_is_mapped_is_named(which, how, tmp_path):
    """The kernel ends a process that touches what is gone: SIGBUS, and no word of which file."""
    write_corpus(tmp_path, {"a": random_documents(1300, 1000)})
    program = [sys.executable, "-c", textwrap.dedent(CUT), str(tmp_path), which, how]
    done = subprocess.run(program, capture_output=True, text=True)
    assert done.returncode == 0, f"ended by {-done.returncode}: {done.stderr}"
    assert f"{which} is cut: it held" in done.stdout


def test_drafts_are_not_written_through_links(tmp_path):
    precious = tmp_path / "precious"
    precious.write_text("as it was")
    folder = tmp_path / "corpus"
    folder.mkdir()
    for name in (".a.ds.part", ".a.ds.index.part", ".a.ds.pages.part", ".a.ds.index.pages.part", ".manifest.json.part"):
        (folder / name).symlink_to(precious)
    write_corpus(folder, {"a": random_documents(3, 30)})
    assert precious.read_text() == "as it was"
    assert open_corpus(folder).verified
    assert not any(path.is_symlink() for path in folder.iterdir())


def test_a_draft_that_a_killed_process_left_is_replaced(tmp_path):
    (tmp_path / ".a.ds.part").write_bytes(b"half" * 5000)
    write_corpus(tmp_path, {"a": random_documents(3, 30)})
    assert open_corpus(tmp_path).verified
