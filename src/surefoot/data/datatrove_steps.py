"""The two steps of datatrove's pipeline that make a corpus: documents from files, shards from documents."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from datatrove.data import Document
from datatrove.pipeline.base import PipelineStep
from datatrove.pipeline.readers.base import BaseDiskReader
from loguru import logger

from surefoot.data.tokenize_task import Job, write_shards
from surefoot.errors import DataError

logger.disable("datatrove")  # it prints a page for every task; errors are still raised


class Documents(BaseDiskReader):
    """Lines of `.jsonl` (also compressed) and rows of `.parquet`; any other file of UTF-8 text is one document."""

    name = "documents"

    def __init__(self, folder: str, text_key: str = "text") -> None:
        super().__init__(folder, text_key=text_key, add_file_path=False)

    def read_file(self, filepath: str) -> Iterator[Any]:
        """The documents in a file."""
        suffixes = Path(filepath).suffixes
        if ".jsonl" in suffixes:
            yield from self._lines(filepath)
        elif ".parquet" in suffixes:
            from datatrove.pipeline.readers.parquet import ParquetReader

            yield from ParquetReader(self.data_folder, text_key=self.text_key).read_file(filepath)
        else:
            yield from self._whole_file(filepath)

    def _lines(self, filepath: str) -> Iterator[Any]:
        """The documents in the lines of a file. An unreadable line stops the job; datatrove's reader skips it."""
        with self.data_folder.open(filepath, "rt", encoding="utf-8", compression="infer") as file:
            for number, line in enumerate(file):
                try:
                    text = json.loads(line)[self.text_key]
                except (json.JSONDecodeError, TypeError, KeyError) as error:
                    raise DataError(
                        f"line {number + 1:,} of {filepath} is not a JSON object with text under {self.text_key!r}: "
                        f"{line[:60]!r}"
                    ) from error
                if text:
                    yield Document(text=text, id=f"{filepath}/{number}")

    def _whole_file(self, filepath: str) -> Iterator[Any]:
        with self.data_folder.open(filepath, "rb") as file:
            content = file.read()
        try:
            text = content.decode()
        except UnicodeDecodeError:
            text = ""
        if text and "\0" not in text:
            yield Document(text=text, id=filepath)


class TokenizeDocuments(PipelineStep):
    """The last step: writes the shards of a task's documents."""

    type, name = "TOKENIZER", "surefoot"

    def __init__(self, folder: str, source: str, job: Job) -> None:
        super().__init__()
        self.folder, self.source, self.job = folder, source, job

    def run(self, data: Any, rank: int = 0, world_size: int = 1) -> Iterator[Any]:
        """Writes shards, and yields nothing."""
        os.environ.setdefault("RAYON_NUM_THREADS", "1")  # each task has its own core
        write_shards((document.text for document in data), Path(self.folder), self.job, self.source, rank)
        yield from ()
