"""Tokens that others have written are read without conversion, and can be adopted."""

from pathlib import Path

import numpy as np
import pytest

from surefoot.data.document_ends import open_ends
from surefoot.data.formats import adopt, open_corpus
from surefoot.data.windows import TokenWindows
from surefoot.errors import DataError
from tests.data.corpora import DOCUMENTS, STREAM, megatron

ENDS = np.cumsum([len(each) for each in DOCUMENTS])


def nanogpt(folder: Path) -> Path:
    STREAM.astype("<u2").tofile(folder / "train.bin")
    return folder / "train.bin"


def llm_c(folder: Path) -> Path:
    header = np.zeros(256, "<i4")
    header[:3] = 20240520, 1, len(STREAM)
    (folder / "train.bin").write_bytes(header.tobytes() + STREAM.astype("<u2").tobytes())
    return folder / "train.bin"


def datatrove(folder: Path) -> Path:
    from datatrove.pipeline.tokens.tokenizer import TokenizedFile

    file = TokenizedFile(str(folder), "00000.ds", token_size=4, save_final_metadata=True)
    for document in DOCUMENTS:
        file.write_bytes(document.astype("<u4").tobytes())
    file.close()
    return folder / "00000.ds"


def npy(folder: Path) -> Path:
    np.save(folder / "tokens.npy", STREAM.astype(np.uint32))
    return folder / "tokens.npy"


def raw_npy(folder: Path) -> Path:
    STREAM.astype("<u2").tofile(folder / "part-0.npy")  # as OLMo keeps it: the suffix, and no header
    return folder / "part-0.npy"


WRITERS = {
    "nanogpt": (nanogpt, False),
    "llm_c": (llm_c, False),
    "datatrove": (datatrove, True),
    "megatron": (megatron, True),
    "npy": (npy, False),
    "raw_npy": (raw_npy, False),
}


@pytest.mark.parametrize("name", WRITERS)
def test_a_foreign_file_is_read_as_it_is(name, tmp_path):
    write, has_documents = WRITERS[name]
    if name == "datatrove":
        pytest.importorskip("datatrove")
    path = write(tmp_path)
    content = {each: each.read_bytes() for each in tmp_path.iterdir()}
    with pytest.warns(UserWarning, match="is read without verification: it has no hashes"):
        corpus = open_corpus(path)
    assert np.array_equal(corpus.tokens(0, 0, len(STREAM)), STREAM)
    assert not corpus.verified
    if has_documents:
        assert corpus.ends(0).tolist() == ENDS.tolist()
        assert corpus.ends(0, 3, 4).tolist() == ENDS[3:7].tolist()
    else:
        with pytest.raises(DataError, match="does not say where its documents end"):
            corpus.ends(0)
    tokens, targets = TokenWindows(corpus, 64)[3]
    assert tokens.tolist() == STREAM[192:256].tolist()
    assert targets.tolist() == STREAM[193:257].tolist()

    adopt(path)
    assert {each: each.read_bytes() for each in content} == content
    assert open_corpus(path).verified
    adopted = open_corpus(path.parent)
    assert adopted.verified
    assert not has_documents or adopted.ends(0).tolist() == ENDS.tolist()
    assert np.array_equal(adopted.tokens(0, 0, len(STREAM)), STREAM)
    with next(iter(sorted(each for each in content if each.suffix in (".ds", ".bin", ".npy")))).open("r+b") as file:
        file.seek(-1, 2)
        file.write(b"\xfe")
    with pytest.raises(DataError, match="is damaged: page"):
        adopted.tokens(0, len(STREAM) - 1, 1)


def test_a_replaced_foreign_file_has_another_identity(tmp_path):
    path = nanogpt(tmp_path)
    before = open_corpus(path, verify=False).identity()
    assert open_corpus(path, verify=False).identity() == before
    np.roll(STREAM, 1).astype("<u2").tofile(path)
    assert open_corpus(path, verify=False).identity() != before


def test_what_is_no_corpus_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"no manifest\.json"):
        open_corpus(tmp_path)
    (tmp_path / "odd.bin").write_bytes(b"123")
    with pytest.raises(DataError, match="not a whole number of uint16"):
        adopt(tmp_path)
    (tmp_path / "odd.bin").unlink()
    np.save(tmp_path / "matrix.npy", np.zeros((2, 2), np.uint16))
    with pytest.raises(DataError, match=r"shape \(2, 2\)"):
        adopt(tmp_path)
    np.save(tmp_path / "matrix.npy", np.zeros(2, np.float32))
    with pytest.raises(DataError, match="float32"):
        adopt(tmp_path)
    np.save(tmp_path / "matrix.npy", np.zeros(2, np.uint16))
    np.save(tmp_path / "wide.npy", np.zeros(2, np.uint32))
    with pytest.raises(DataError, match="several types"):
        adopt(tmp_path)
    (tmp_path / "text.idx").write_bytes(b"nonsense")
    (tmp_path / "text.bin").write_bytes(b"1234")
    with pytest.raises(DataError, match="not an index of Megatron"):
        open_corpus(tmp_path / "text.bin", verify=False)


def test_a_file_with_holes_is_refused_before_it_is_hashed(tmp_path: Path):
    with open(tmp_path / "tokens.bin", "wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(DataError, match=r"has holes: [\d,]+ of its 1,099,511,627,776 bytes are stored"):
        adopt(tmp_path, dtype="uint16")


def test_an_index_of_documents_that_is_cut_is_named(tmp_path: Path):
    np.arange(64, dtype="<u2").tofile(tmp_path / "tokens.ds")
    (tmp_path / "tokens.ds.index").write_bytes(b"x" * 13)
    with pytest.raises(
        DataError, match=r"tokens\.ds\.index is damaged: 13 bytes are not a whole number of document ends"
    ):
        open_ends(tmp_path / "tokens.ds", "")


def test_a_note_of_datatrove_that_is_no_text_is_no_crash(tmp_path: Path):
    np.arange(64, dtype="<u2").tofile(tmp_path / "tokens.ds")
    (tmp_path / "tokens.ds.metadata").write_bytes(b"\xff\xfe\n1")
    assert adopt(tmp_path).dtype == "uint16"
