"""From text to a corpus, by datatrove: share-nothing tasks that can be killed at any moment and run again.

Every task reads its files, tokenises them with a fast engine, has the reference tokenizer encode a share of
the documents again, and writes its shards whole or not at all. The manifest is written when all are done.
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
from xxhash import xxh3_64_intdigest

from surefoot.data.shards import ShardWriter, smallest_dtype, write_manifest
from surefoot.data.tokenizer import BYTES, BytePairTokenizer, ByteTokenizer, Tokenizer, train_byte_pairs
from surefoot.errors import DataError
from surefoot.records.codec import from_json, to_json
from surefoot.records.files import write_whole
from surefoot.records.manifest import HELD_OUT, TRAIN, Manifest, Shard

TASK_BYTES = 256 << 20  # of text; fewer, down to SMALL_TASK_BYTES, until there are eight tasks
SMALL_TASK_BYTES = 16 << 20
BATCH_BYTES = 8 << 20
TRAINING_BYTES = 64 << 20  # of text, to learn a byte-pair encoding from


@dataclass(frozen=True)
class Source:
    """Files of text under one name, and the number of tasks that share them."""

    name: str
    folder: str
    files: tuple[str, ...]
    tasks: int


@dataclass(frozen=True)
class Job:
    """What decides every token of a corpus. `held_out` and `audit` are shares of the documents."""

    sources: tuple[Source, ...]
    tokenizer: str
    end_of_document: str = ""
    held_out: float = 0.0
    audit: float = 0.005
    text_key: str = "text"


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
    Killed and called again, it does what is left, to the same bits. `executor` is one of datatrove's, such as
    `partial(SlurmPipelineExecutor, time="8:00:00", partition="cpu")`; where that returns before the tasks are
    done, so does this, with None: called again when they are, it writes the manifest.
    """
    folder = Path(to)
    job = Job(_sources(paths), tokenizer, end_of_document, held_out, audit, text_key)
    _begin(folder, job)
    chosen = _tokenizer(folder, job)
    with _telling(folder, job, tell):
        for source in job.sources:
            _run(folder, job, source, workers, executor)
    return _seal(folder, job, chosen) if _tasks_done(folder, job) == sum(each.tasks for each in job.sources) else None


# ------------------------------------------------------------------------------------------- what is read


def _sources(paths: Sequence[str]) -> tuple[Source, ...]:
    """The files behind each path, in order of name."""
    found = [_source(path) for path in paths]
    names = [each.name for each in found]
    if len(set(names)) < len(names):
        raise DataError(f"two sources have one name: {', '.join(names)}; write name=path")
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
    folder = io.get_datafolder(base)
    files = sorted(folder.list_files(recursive=True, glob_pattern=pattern or None))
    files = [file for file in files if not any(part.startswith(".") for part in file.split("/"))]
    if not files:
        raise DataError(f"no files of text in {place}")
    size = sum(folder.size(file) for file in files)
    tasks = min(len(files), max(min(8, -(-size // SMALL_TASK_BYTES)), -(-size // TASK_BYTES), 1))
    return Source((name if given else parts[wild - 1]).replace("/", "-") or "text", base, tuple(files), tasks)


def _documents(job: Job, source: Source) -> Any:
    """The step that reads the documents of a source."""
    from surefoot.data.steps import Documents

    return Documents(source.folder, text_key=job.text_key)


# ------------------------------------------------------------------------------------------- what is done


def _begin(folder: Path, job: Job) -> None:
    """Writes down the job, or finds that it is the one that was begun here before."""
    (folder / ".job").mkdir(parents=True, exist_ok=True)
    kept = folder / ".job" / "job.json"
    if not kept.exists():
        if any(path.name != ".job" for path in folder.iterdir()):
            raise DataError(f"{folder} is not empty; name another folder for this corpus")
        write_whole(kept, to_json(job))
    elif from_json(Job, kept.read_text(encoding="utf-8")) != job:
        raise DataError(
            f"{folder} was begun with other texts or another tokenizer, as {kept} says; name another folder"
        )
    for source in job.sources:
        write_whole(folder / ".job" / f"{source.name}.files", "\n".join(source.files) + "\n")


def _tokenizer(folder: Path, job: Job) -> Tokenizer:
    """The tokenizer of a job; a byte-pair encoding is kept in the corpus, and learned first if it is to be."""
    kept = folder / "tokenizer.json"
    if job.tokenizer == BYTES:
        return ByteTokenizer()
    if not kept.exists():
        kind, _, size = job.tokenizer.partition(":")
        if kind == "bpe" and size.isdecimal():
            train_byte_pairs(_texts_to_learn_from(job), int(size), draft := folder / ".job" / "tokenizer.json")
            content = draft.read_text(encoding="utf-8")
        else:
            content = _tokenizer_file(job.tokenizer).read_text(encoding="utf-8")
        write_whole(kept, content)
    return BytePairTokenizer(kept, job.end_of_document)


def _tokenizer_file(name: str) -> Path:
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
    from surefoot.data.steps import TokenizeDocuments

    reader = _documents(job, source)
    reader.paths_file = str((folder / ".job" / f"{source.name}.files").resolve())
    step = TokenizeDocuments(str(folder.resolve()), source.name, job)
    run_by = executor or _datatrove("executor").LocalPipelineExecutor
    local = {} if executor else {"workers": min(workers, source.tasks)}
    run_by(pipeline=[reader, step], tasks=source.tasks, logging_dir=str(_logs(folder, source)), **local).run()


def write_shards(texts: Iterable[str], folder: Path, job: Job, source: str, rank: int) -> None:
    """One task: the shards of its documents, one for each part of the corpus."""
    tokenizer = _tokenizer(folder, job)
    dtype, parts = smallest_dtype(tokenizer.size), (TRAIN, HELD_OUT) if job.held_out else (TRAIN,)
    names = {part: f"{source}-{part}-{rank:05d}" for part in parts}
    writers = {part: ShardWriter(folder, name, dtype, source=source, part=part) for part, name in names.items()}
    try:
        for part, tokens, text_bytes in _tokenized(texts, tokenizer, job):
            writers[part].add(tokens, text_bytes)
    except BaseException:
        for writer in writers.values():
            writer.discard()
        raise
    for part, writer in writers.items():
        shard = writer.close()
        if shard is not None:
            write_whole(_record(folder, source, part, rank), to_json(shard))


def _tokenized(texts: Iterable[str], tokenizer: Tokenizer, job: Job) -> Iterator[tuple[str, np.ndarray, int]]:
    """Part, tokens and size of each document. Chance is its content's hash: equal documents are in one part."""
    end, audited = [tokenizer.end_of_document], False
    for batch in _batches(map(sound, texts)):
        for text, tokens in zip(batch, tokenizer.encode(batch), strict=True):
            content = text.encode()
            chance = xxh3_64_intdigest(content)
            if not audited or chance % 2**20 < job.audit * 2**20:
                _audit(tokenizer, text, tokens)
                audited = True
            part = HELD_OUT if (chance >> 20) % 2**20 < job.held_out * 2**20 else TRAIN
            yield part, np.concatenate([tokens, end]), len(content)


def _audit(tokenizer: Tokenizer, text: str, tokens: np.ndarray) -> None:
    expected = next(iter(tokenizer.reference([text])))
    if np.array_equal(tokens, expected):
        return
    least = min(len(tokens), len(expected))
    differ = np.flatnonzero(tokens[:least] != expected[:least])
    place = int(differ[0]) if len(differ) else least
    raise DataError(
        f"the fast tokenizer and the reference disagree from token {place:,} on: {tokens[place : place + 5].tolist()} "
        f"and {expected[place : place + 5].tolist()}, in a document that begins {text[:60]!r}"
    )


def sound(text: str) -> str:
    """The text, with a question mark for every half of a surrogate pair that stands alone."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode()
    return text


def _batches(texts: Iterable[str]) -> Iterator[list[str]]:
    waiting: list[str] = []
    size = 0
    for text in texts:
        waiting.append(text)
        size += len(text)
        if size > BATCH_BYTES:
            yield waiting
            waiting, size = [], 0
    if waiting:
        yield waiting


def _seal(folder: Path, job: Job, tokenizer: Tokenizer) -> Manifest:
    """The manifest of all shards."""
    shards = []
    for source in job.sources:
        for part in (TRAIN, HELD_OUT):
            for rank in range(source.tasks):
                record = _record(folder, source.name, part, rank)
                if record.exists():
                    shards.append(from_json(Shard, record.read_text(encoding="utf-8")))
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


def _record(folder: Path, source: str, part: str, rank: int) -> Path:
    """Where a shard's record waits for the manifest."""
    return folder / ".job" / f"{source}-{part}-{rank:05d}.json"


# ------------------------------------------------------------------------------------------- how far it is


def _logs(folder: Path, source: Source) -> Path:
    return folder.resolve() / ".job" / source.name


def _tasks_done(folder: Path, job: Job) -> int:
    """datatrove leaves an empty file for every task that is done."""
    return sum(sum(1 for _ in (_logs(folder, each) / "completions").glob("*")) for each in job.sources)


def progress(folder: Path, job: Job) -> TaskProgress:
    """How far a job has come, seen from its files."""
    written = [*folder.glob("*.ds"), *folder.glob(".*.ds.part")]
    size = sum(path.stat().st_size for path in written if path.exists())
    return TaskProgress(_tasks_done(folder, job), sum(each.tasks for each in job.sources), size)


@contextmanager
def _telling(folder: Path, job: Job, tell: Callable[[TaskProgress], None] | None) -> Iterator[None]:
    """Tells twice a second how far the job is, from a thread of its own."""
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
        raise DataError("tokenising needs datatrove: pip install 'surefoot[data]'") from error
