"""Files of rows: told apart by what they hold, damage is named, and a folder's splits stay apart."""

import builtins
import json
import os
from pathlib import Path

import pytest

from surefoot.data.record_files import rows_of, splits_of
from surefoot.errors import DataError

ROWS = [{"text": f"row {number}", "tags": [{"a": number}]} for number in range(300)]


def lines(file: Path) -> Path:
    file.write_text("".join(json.dumps(row) + "\n" for row in ROWS), encoding="utf-8-sig")
    return file


def in_a_list(file: Path) -> Path:
    file.write_text(json.dumps(ROWS, indent=1), encoding="utf-8")
    return file


def parquet(file: Path) -> Path:
    pyarrow, tables = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    tables.write_table(pyarrow.Table.from_pylist(ROWS), file)
    return file


def arrow_file(file: Path) -> Path:
    pyarrow = pytest.importorskip("pyarrow")
    table = pyarrow.Table.from_pylist(ROWS)
    with pyarrow.OSFile(str(file), "wb") as out, pyarrow.ipc.new_file(out, table.schema) as writer:
        writer.write_table(table)
    return file


def arrow_stream(file: Path) -> Path:
    pyarrow = pytest.importorskip("pyarrow")
    table = pyarrow.Table.from_pylist(ROWS)
    with pyarrow.OSFile(str(file), "wb") as out, pyarrow.ipc.new_stream(out, table.schema) as writer:
        writer.write_table(table, max_chunksize=100)
    return file


@pytest.mark.parametrize("write", [lines, in_a_list, parquet, arrow_file, arrow_stream])
def test_what_a_file_is_its_content_says_and_not_its_name(write, tmp_path):
    found = list(rows_of(write(tmp_path / "data.of.some.kind")))
    assert [row for _, row in found] == ROWS
    assert [place.number for place, _ in found] == list(range(1, 301))


@pytest.mark.parametrize("write", [parquet, arrow_file, arrow_stream])
@pytest.mark.parametrize("left", [0.5, 0.97])
def test_a_file_that_was_cut_off_is_named(write, left, tmp_path):
    file = write(tmp_path / "data")
    file.write_bytes(file.read_bytes()[: int(left * file.stat().st_size)])
    with pytest.raises(DataError, match=r"data is damaged or was cut off: .*; copy it again"):
        list(rows_of(file))


def test_a_stream_without_its_end_is_named_although_pyarrow_reads_it(tmp_path):
    file = arrow_stream(tmp_path / "data")
    file.write_bytes(file.read_bytes()[:-8])
    with pytest.raises(DataError, match="it ends before its last batch"):
        list(rows_of(file))


def test_keys_that_arrow_added_are_gone_and_lines_keep_their_null(tmp_path):
    pyarrow, tables = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    rows = [{"m": [{"role": "user", "name": None}, {"role": "tool", "name": "add"}], "n": None}]
    tables.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "rows")
    assert [row for _, row in rows_of(tmp_path / "rows")] == [
        {"m": [{"role": "user"}, {"role": "tool", "name": "add"}], "n": None}
    ]
    (tmp_path / "lines").write_text(json.dumps(rows[0]) + "\n")
    assert [row for _, row in rows_of(tmp_path / "lines")] == rows


def test_a_line_that_is_no_json_is_handed_over_and_the_others_too(tmp_path):
    (tmp_path / "lines").write_text('{"a": 1}\n{"a": \n\n[1]\n')
    found = [(place.number, value) for place, value in rows_of(tmp_path / "lines")]
    assert [number for number, _ in found] == [1, 2, 4]
    assert isinstance(found[1][1], DataError)
    assert (found[0][1], found[2][1]) == ({"a": 1}, [1])


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"[{}, ", r"a file that begins with \[ must be one JSON list"),
        (b"\x1f\x8b\x08\x00", r"is compressed \(gzip\): unpack it first"),
    ],
)
def test_what_cannot_be_read_is_refused(content, said, tmp_path):
    (tmp_path / "data").write_bytes(content)
    with pytest.raises(DataError, match=said):
        list(rows_of(tmp_path / "data"))


def test_without_pyarrow_one_sentence_names_the_command(tmp_path, monkeypatch):
    file, imported = parquet(tmp_path / "data"), builtins.__import__

    def without(name, *rest):
        if name.startswith("pyarrow"):
            raise ImportError(name)
        return imported(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(DataError, match=r"data is a Parquet file, which needs pyarrow: pip install pyarrow$"):
        list(rows_of(file))


# ------------------------------------------------------------------------------------------- folders


def test_a_folder_that_datasets_saved_is_read_without_datasets(tmp_path):
    datasets = pytest.importorskip("datasets")
    whole = datasets.Dataset.from_list(ROWS)
    whole.select(range(9, 299, 2)).save_to_disk(tmp_path / "one", num_shards=2)
    (files,) = splits_of(tmp_path / "one").values()
    assert [row for file in files for _, row in rows_of(file)] == ROWS[9:299:2]
    datasets.DatasetDict({"train": whole, "validation": whole.select(range(3))}).save_to_disk(tmp_path / "two")
    splits = splits_of(tmp_path / "two")
    assert {name: sum(1 for file in files for _ in rows_of(file)) for name, files in splits.items()} == {
        "train": 300,
        "validation": 3,
    }
    splits["train"][0].unlink()
    with pytest.raises(DataError, match=r"names data-00000-of-00001\.arrow, which is missing: copy the folder again"):
        splits_of(tmp_path / "two")


def test_a_note_that_leads_out_of_its_folder_is_refused(tmp_path):
    (tmp_path / "state.json").write_text('{"_data_files": [{"filename": "../other.arrow"}]}')
    with pytest.raises(DataError, match="leads out of the folder"):
        splits_of(tmp_path)


def test_files_of_a_folder_belong_to_the_split_of_their_names(tmp_path):
    for name in ("data/train-00000-of-00002.parquet", "data/train-00001-of-00002.parquet", "data/test-00000.parquet",
                 "more/validation.jsonl", "training_notes.json", "dataset_infos.json"):  # fmt: skip
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    os.mkfifo(tmp_path / "data" / "pipe.jsonl")
    (tmp_path / "data" / "folder.parquet").mkdir()
    found = {name: [file.name for file in files] for name, files in splits_of(tmp_path).items()}
    assert found == {
        "test": ["test-00000.parquet"],
        "train": ["train-00000-of-00002.parquet", "train-00001-of-00002.parquet", "training_notes.json"],
        "validation": ["validation.jsonl"],
    }
    with pytest.raises(DataError, match="there is no file"):
        splits_of(tmp_path / "none")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"holds no \.jsonl, .* and no data set that `datasets` saved"):
        splits_of(tmp_path / "empty")
