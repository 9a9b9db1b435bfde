"""Tokenises text to a corpus, with datatrove: independent tasks that can be killed at any time and run again.

Every task reads its files and tokenises them with a fast engine. The reference tokenizer encodes a share of the
documents again, to compare. The task writes its shards whole or not at all. The manifest is written when all tasks
are done.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from surefoot.data.shards import smallest_dtype, write_manifest
from surefoot.data.tokenize_task import Job, Source, record_of, sound, tokenizer_file, tokenizer_of
from surefoot.data.tokenizer import BYTES, BytePairTokenizer, train_byte_pairs
from surefoot.errors import DataError, first_line, installing
from surefoot.plain_files import make_folder, write_whole
from surefoot.records.codec import read_record, to_json
from surefoot.records.manifest import HELD_OUT, TRAIN, Manifest, Shard

TASK_BYTES = 256 << 20  # of text; fewer, down to SMALL_TASK_BYTES, until there are eight tasks
SMALL_TASK_BYTES = 16 << 20
TRAINING_BYTES = 64 << 20  # of text, to learn a byte-pair encoding from
MOST_LEARNED = 2**22  # tokens of a vocabulary: sixteen times the largest that is in use; the library makes room for all


@dataclass(frozen=True)
class TaskProgress:
    """How far a job has come."""

    tasks_done: int
    tasks: int
    token_bytes: int


def tokenize(
    paths: Sequence[str],
    to: str | Path,
    *,
    tokenizer: str = BYTES,
    end_of_document: str = "",
    held_out: float = 0.0,
    audit: float = 0.005,
    text_key: str = "text",
    workers: int = 1,
    tell: Callable[[TaskProgress], None] | None = None,
    executor: Callable[..., Any] | None = None,
) -> Manifest | None:
    """Makes a corpus of the text in folders, globs or files, one source each; `name=path` names a source.

    `tokenizer` is `bytes`, `bpe:SIZE`, which is learned from the text itself, or a `tokenizer.json`.
    If it is killed, call it again: it does the rest, with the same bits. `executor` is one of datatrove's, for example
    `partial(SlurmPipelineExecutor, time="8:00:00", partition="cpu")`. If the executor returns before the tasks are
    done, this returns None. Call it again when they are done: it then writes the manifest.
    """
    folder = Path(to)
    job = Job(_sources(paths), tokenizer, end_of_document, held_out, audit, text_key)
    _refuse_unsound_tokenizer(folder, job)
    _begin(folder, job)
    _keep_tokenizer(folder, job)
    with _telling(folder, job, tell):
        for source in job.sources:
            _run(folder, job, source, workers, executor)
    return _seal(folder, job) if _tasks_done(folder, job) == sum(each.tasks for each in job.sources) else None


# ------------------------------------------------------------------------------------------- what is read


def _sources(paths: Sequence[str]) -> tuple[Source, ...]:
    """The files of each path, in order of name."""
    found = [_source(path) for path in paths]
    names = [each.name for each in found]
    if len(set(names)) < len(names):
        raise DataError(f"two sources have the same name: {', '.join(names)}; write name=path")
    return tuple(found)


def _source(path: str) -> Source:
    io = _datatrove("io")
    name, given, place = path.rpartition("=")
    place = place if "://" in place else os.path.abspath(place)
    parts = place.rstrip("/").split("/")
    wild = next((number for number, part in enumerate(parts) if set(part) & set("*?[")), len(parts))
    if wild == len(parts) and os.path.isfile(place):
        wild -= 1
    base, pattern = "/".join(parts[:wild]) or "/", "/".join(parts[wild:])
    try:
        folder = io.get_datafolder(base)
        files = sorted(folder.list_files(recursive=True, glob_pattern=pattern or None))
        files = [file for file in files if not any(part.startswith(".") for part in file.split("/"))]
        size = sum(folder.size(file) for file in files)
    except Exception as error:  # the libraries of stores have errors of their own
        raise DataError(f"cannot list {place}: {first_line(error)}") from error
    if not files:
        raise DataError(f"no text files in {place}")
    if "://" not in base:
        _refuse_what_is_no_file(os.path.normpath(os.path.join(base, file)) for file in files)
    tasks = min(len(files), max(min(8, -(-size // SMALL_TASK_BYTES)), -(-size // TASK_BYTES), 1))
    return Source((name if given else parts[wild - 1]).replace("/", "-") or "text", base, tuple(files), tasks)


def _refuse_what_is_no_file(paths: Iterable[str]) -> None:
    """A pipe or a device is not read: it may have no end."""
    for path in paths:
        if not os.path.isfile(path):
            raise DataError(f"{path} is not a file: text is read from files and folders")


def _documents(job: Job, source: Source) -> Any:
    """The step that reads the documents of a source."""
    from surefoot.data.datatrove_steps import Documents

    return Documents(source.folder, text_key=job.text_key)


# ------------------------------------------------------------------------------------------- what is done


def _begin(folder: Path, job: Job) -> None:
    """Writes the job to disk. Raises if another job was started in this folder."""
    make_folder(folder / ".job")
    kept = folder / ".job" / "job.json"
    if not kept.exists():
        if any(path.name != ".job" for path in folder.iterdir()):
            raise DataError(f"{folder} is not empty; name another folder for this corpus")
        write_whole(kept, to_json(job), shared=True)
    elif read_record(Job, kept, error=DataError) != job:
        raise DataError(f"{folder} was begun with other texts or another tokenizer, see {kept}; name another folder")
    for source in job.sources:
        write_whole(folder / ".job" / f"{source.name}.files", "\n".join(source.files) + "\n", shared=True)


def _refuse_unsound_tokenizer(folder: Path, job: Job) -> None:
    """Before anything is written, so that the error names the user's file and leaves no folder behind."""
    if (size := _learned_size(job.tokenizer)) > MOST_LEARNED:
        raise DataError(f"--tokenizer {job.tokenizer}: a vocabulary has at most {MOST_LEARNED:,} tokens, not {size:,}")
    if not (job.tokenizer == BYTES or _learned_size(job.tokenizer) or tokenizer_file(folder).exists()):
        BytePairTokenizer(_named_tokenizer(job.tokenizer), job.end_of_document).check()


def _learned_size(tokenizer: str) -> int:
    """The size in `bpe:SIZE`; 0 for a tokenizer that is not learned."""
    kind, _, size = tokenizer.partition(":")
    return int(size) if kind == "bpe" and size.isdecimal() else 0


def _keep_tokenizer(folder: Path, job: Job) -> None:
    """Stores a byte-pair encoding in the corpus. Learns it first for `bpe:SIZE`."""
    kept = tokenizer_file(folder)
    if job.tokenizer == BYTES or kept.exists():
        return
    if size := _learned_size(job.tokenizer):
        train_byte_pairs(_texts_to_learn_from(job), size, draft := folder / ".job" / "tokenizer.json")
        content = draft.read_text(encoding="utf-8")
    else:
        content = _named_tokenizer(job.tokenizer).read_text(encoding="utf-8")
    write_whole(kept, content, shared=True)


def _named_tokenizer(name: str) -> Path:
    path = Path(name) / "tokenizer.json" if Path(name).is_dir() else Path(name)
    if not path.is_file():
        raise DataError(f"no tokenizer {name!r}; name `bytes`, `bpe:SIZE` such as bpe:16384, or a tokenizer.json")
    return path


def _texts_to_learn_from(job: Job) -> Iterator[str]:
    """An equal share of each source, from files spread over all of it."""
    for source in job.sources:
        reader, left = _documents(job, source), TRAINING_BYTES // len(job.sources)
        order = np.random.default_rng(0).permutation(len(source.files)).tolist()
        for document in (each for number in order for each in reader.read_file(source.files[number])):
            left -= len(document.text)
            if left < 0:
                break
            yield sound(document.text)


def _run(folder: Path, job: Job, source: Source, workers: int, executor: Callable[..., Any] | None) -> None:
    from surefoot.data.datatrove_steps import TokenizeDocuments

    reader = _documents(job, source)
    reader.paths_file = str((folder / ".job" / f"{source.name}.files").resolve())
    step = TokenizeDocuments(str(folder.resolve()), source.name, job)
    run_by = executor or _datatrove("executor").LocalPipelineExecutor
    local = {} if executor else {"workers": min(workers, source.tasks)}
    run_by(pipeline=[reader, step], tasks=source.tasks, logging_dir=str(_logs(folder, source)), **local).run()


def _seal(folder: Path, job: Job) -> Manifest:
    """The manifest of all shards."""
    tokenizer, shards = tokenizer_of(folder, job), []
    for source in job.sources:
        for part in (TRAIN, HELD_OUT):
            for rank in range(source.tasks):
                record = record_of(folder, source.name, part, rank)
                if record.exists():
                    shards.append(read_record(Shard, record, error=DataError))
    return write_manifest(
        folder,
        Manifest(
            dtype=smallest_dtype(tokenizer.size),  # type: ignore[arg-type]
            vocabulary=tokenizer.size,
            tokenizer=tokenizer.name,
            end_of_document=tokenizer.end_of_document,
            shards=tuple(shards),
        ),
    )


# ------------------------------------------------------------------------------------------- how far it is


def _logs(folder: Path, source: Source) -> Path:
    return folder.resolve() / ".job" / source.name


def _tasks_done(folder: Path, job: Job) -> int:
    """datatrove leaves an empty file for every task that is done."""
    return sum(sum(1 for _ in (_logs(folder, each) / "completions").glob("*")) for each in job.sources)


def progress(folder: Path, job: Job) -> TaskProgress:
    """How far a job has come, read from its files."""
    written = [*folder.glob("*.ds"), *folder.glob(".*.ds.part")]
    size = sum(path.stat().st_size for path in written if path.exists())
    return TaskProgress(_tasks_done(folder, job), sum(each.tasks for each in job.sources), size)


@contextmanager
def _telling(folder: Path, job: Job, tell: Callable[[TaskProgress], None] | None) -> Iterator[None]:
    """Calls `tell` with the progress twice a second, from a separate thread."""
    if tell is None:
        yield
        return
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.5):
            tell(progress(folder, job))

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()
        tell(progress(folder, job))


def _datatrove(name: str) -> Any:
    import importlib

    try:
        return importlib.import_module(f"datatrove.{name}")
    except ModuleNotFoundError as error:
        raise DataError(f"tokenising needs datatrove: {installing('data', 'datatrove')}") from error
