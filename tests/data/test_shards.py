"""Storage: what is written is what is read, and one flipped bit is caught before it is used."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from xxhash import xxh3_64_intdigest

from surefoot.data import shards
from surefoot.data.formats import open_corpus
from surefoot.data.hash_tree import PAGE, pages_beside, write_hashes
from surefoot.data.pages import MappedFile, ReadFile, hash_pages
from surefoot.data.shards import ShardWriter
from surefoot.data.windows import TokenWindows
from surefoot.errors import DataError
from tests.data.corpora import random_documents, write_corpus


@settings(max_examples=25, deadline=None)
@given(
    lengths=st.lists(st.integers(0, 9000), min_size=1, max_size=8).filter(any),
    vocabulary=st.sampled_from([300, 70_000]),
)
def test_what_is_written_is_what_is_read(lengths, vocabulary, tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    random = np.random.default_rng(0)
    documents = [random.integers(0, vocabulary, length) for length in lengths]
    manifest = write_corpus(folder, {"text": documents}, vocabulary)
    corpus = open_corpus(folder)
    assert corpus.verified
    assert manifest.tokens == sum(lengths)
    assert manifest.documents == len(lengths)
    assert corpus.ends(0).tolist() == np.cumsum(lengths).tolist()
    assert np.array_equal(corpus.tokens(0, 0, manifest.tokens), np.concatenate(documents))
    size = 2 if vocabulary == 300 else 4
    assert (folder / "text.ds").stat().st_size == size * sum(lengths)


def test_a_shard_without_tokens_leaves_nothing(tmp_path):
    assert ShardWriter(tmp_path, "none", "uint16").close() is None
    assert list(tmp_path.iterdir()) == []


def test_a_token_that_does_not_fit_is_refused(tmp_path):
    writer = ShardWriter(tmp_path, "text", "uint16")
    with pytest.raises(DataError, match="65536"):
        writer.add(np.array([1, 65_536]))
    with pytest.raises(DataError, match="-1"):
        writer.add(np.array([1, -1]))
    writer.discard()
    assert list(tmp_path.iterdir()) == []


# ------------------------------------------------------------------------------------------- damage


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp("damage")
    write_corpus(folder, {"a": random_documents(40, 2000), "b": random_documents(30, 3000, seed=1)})
    return folder


@pytest.fixture(params=["mapped", "read"])
def how(request, monkeypatch):
    """Small corpora are mapped, large ones are read."""
    if request.param == "read":
        monkeypatch.setattr(shards, "MAPPED_BYTES", 0)


def read_everything(folder: Path) -> None:
    """As training reads it: all windows, in batches, and the ends of all documents."""
    corpus = open_corpus(folder)
    windows = TokenWindows(corpus, 100)
    for first in range(0, len(windows), 8):
        windows.__getitems__(np.arange(first, min(first + 8, len(windows))))
    for shard, each in enumerate(corpus.manifest.shards):
        corpus.tokens(shard, each.tokens - 101, 101)
        corpus.ends(shard)


def flip(path: Path, bit: int) -> None:
    with path.open("r+b") as file:
        file.seek(bit // 8)
        byte = file.read(1)[0]
        file.seek(bit // 8)
        file.write(bytes([byte ^ 1 << bit % 8]))


def flips_caught(folder: Path, tries: int) -> None:
    read_everything(folder)
    random = np.random.default_rng(0)
    files = [path for path in sorted(folder.iterdir()) if path.suffix in (".ds", ".index", ".pages")]
    sizes = np.array([path.stat().st_size for path in files])
    for attempt in range(tries):
        which = attempt % len(files) if attempt < 4 * len(files) else random.choice(len(files), p=sizes / sizes.sum())
        path, bit = files[which], int(random.integers(8 * sizes[which]))
        flip(path, bit)
        with pytest.raises(DataError) as caught:
            read_everything(folder)
        flip(path, bit)
        assert str(path) in str(caught.value)
        if path.suffix != ".pages":
            page = bit // 8 // PAGE
            assert f"page {page:,}, the {PAGE} bytes from offset {page * PAGE:,}" in str(caught.value)
    read_everything(folder)


@pytest.mark.usefixtures("how")
def test_one_flipped_bit_anywhere_is_caught_and_named(written):
    flips_caught(written, 60)


@pytest.mark.long
@pytest.mark.usefixtures("how")
def test_five_hundred_flipped_bits_are_caught_and_named(written):
    flips_caught(written, 500)


def test_without_verification_a_flipped_bit_goes_unseen(written):
    """The proof that the flips above hit something: the tokens do change."""
    before = np.array(open_corpus(written, verify=False).tokens(0, 0, 5000))
    flip(written / "a.ds", 16 * 1234)
    after = np.array(open_corpus(written, verify=False).tokens(0, 0, 5000))
    flip(written / "a.ds", 16 * 1234)
    assert np.flatnonzero(before != after).tolist() == [1234]


@pytest.mark.usefixtures("how")
def test_a_replaced_shard_of_equal_size_is_refused(written, tmp_path):
    folder = tmp_path / "corpus"
    shutil.copytree(written, folder)
    before = TokenWindows(open_corpus(folder), 100).identity()
    other = tmp_path / "other"
    documents = [np.roll(document, 1) for document in random_documents(40, 2000)]
    write_corpus(other, {"a": documents, "b": random_documents(30, 3000, seed=1)})
    assert (other / "a.ds").stat().st_size == (folder / "a.ds").stat().st_size

    os.replace(other / "a.ds", folder / "a.ds")
    with pytest.raises(DataError, match=r"a\.ds is damaged: page 0"):
        read_everything(folder)
    os.replace(other / "a.ds.pages", folder / "a.ds.pages")
    with pytest.raises(DataError, match=r"damaged or was replaced|file was cut or replaced"):
        read_everything(folder)
    os.replace(other / "manifest.json", folder / "manifest.json")
    read_everything(folder)
    assert TokenWindows(open_corpus(folder), 100).identity() != before


@pytest.mark.usefixtures("how")
def test_a_cut_shard_is_refused(written, tmp_path):
    folder = tmp_path / "corpus"
    shutil.copytree(written, folder)
    os.truncate(folder / "a.ds", (folder / "a.ds").stat().st_size - 2)
    with pytest.raises(DataError, match="is cut"):
        TokenWindows(open_corpus(folder, verify=False), 100)[0]
    with pytest.raises(DataError, match=r"cut|damaged"):
        read_everything(folder)


def test_a_changed_manifest_is_refused(written, tmp_path):
    folder = tmp_path / "corpus"
    shutil.copytree(written, folder)
    content = json.loads((folder / "manifest.json").read_text())
    content["vocabulary"] += 1
    (folder / "manifest.json").write_text(json.dumps(content))
    with pytest.raises(DataError, match="changed by hand"):
        open_corpus(folder)
    (folder / "manifest.json").write_text("{")
    with pytest.raises(DataError, match=r"manifest\.json is damaged: it is not JSON"):
        open_corpus(folder)


@pytest.mark.parametrize("kind", [MappedFile, ReadFile])
@settings(max_examples=20, deadline=None)
@given(pages=st.sampled_from([1, 2, 511, 512, 513, 1025, 512 * 512, 512 * 512 + 1]), tail=st.integers(1, PAGE))
def test_hashes_of_hashes_fix_a_file_of_any_size(kind, pages, tail, tmp_path_factory):
    """Up to three levels; a damaged hash on any level is found when it is needed, and not before."""
    path = tmp_path_factory.mktemp("tree") / "file"
    path.touch()
    os.truncate(path, (pages - 1) * PAGE + tail)
    digest = hash_pages_of_zeros(path)
    file = kind(path, digest)
    for first in (0, file.size - 1, file.size // 2):
        assert bytes(file.read(first, 1)) == b"\0"
    last = (pages - 1) // 512
    flip(pages_beside(path), 8 * PAGE * last + 5)
    with pytest.raises(DataError, match=r"file\.pages is damaged|end of .*file\.pages"):
        kind(path, digest).read(file.size - 1, 1)
    if last:
        kind(path, digest).read(0, 1)


@pytest.mark.parametrize("kind", [MappedFile, ReadFile])
def test_a_long_read_checks_every_page_of_hashes(kind, tmp_path):
    """A page and its hash are both replaced, between two pages of hashes that are known to be sound."""
    path = tmp_path / "file"
    path.touch()
    os.truncate(path, 3 * 512 * PAGE)
    file = kind(path, hash_pages_of_zeros(path))
    file.read(0, 1)
    file.read(3 * 512 * PAGE - 1, 1)
    with path.open("r+b") as tokens, pages_beside(path).open("r+b") as hashes:
        tokens.seek(700 * PAGE)
        tokens.write(b"\1" * PAGE)
        hashes.seek(700 * 8)
        hashes.write(xxh3_64_intdigest(b"\1" * PAGE).to_bytes(8, "little"))
    with pytest.raises(DataError, match=r"file\.pages is damaged: page 1,"):
        file.read(0, 3 * 512 * PAGE)


def test_more_shards_than_a_process_may_open_files(tmp_path):
    """With a limit of 100 files, each of 60 shards is read twice; open shards take two files."""
    write_corpus(tmp_path, {f"s{number}": random_documents(1, 300, seed=number) for number in range(60)})
    script = f"""
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))
from surefoot.data import shards
from surefoot.data.formats import open_corpus
for shards.MAPPED_BYTES in (shards.MAPPED_BYTES, 0):
    corpus = open_corpus({str(tmp_path)!r})
    for _ in range(2):
        for number, shard in enumerate(corpus.manifest.shards):
            corpus.tokens(number, 0, shard.tokens)
            corpus.ends(number)
"""
    subprocess.run([sys.executable, "-c", script], check=True)


@given(first=st.integers(0, 9999), length=st.integers(1, 9999))
@settings(max_examples=60, deadline=None)
def test_a_map_and_a_read_give_the_same_bytes(first, length, tmp_path_factory):
    path = tmp_path_factory.getbasetemp() / "both"
    content = np.random.default_rng(0).bytes(10_000)
    path.write_bytes(content)
    digest, end = hash_pages(path), min(first + length, 10_000)
    for kind in (MappedFile, ReadFile):
        for each in (kind(path, digest), kind(path)):
            each.advise(first, end - first)
            assert bytes(each.read(first, end - first)) == content[first:end]


def hash_pages_of_zeros(path: Path) -> str:
    whole, tail = divmod(path.stat().st_size, PAGE)
    hashes = [xxh3_64_intdigest(bytes(PAGE))] * whole + [xxh3_64_intdigest(bytes(tail))] * bool(tail)
    return write_hashes(pages_beside(path), hashes)
