"""A corpus of conversations or preferences: tokens, and beside them a second corpus with a mark for each token.

    corpus/manifest.json, *.ds     the tokens, a document per conversation; of a preference two, the better one first
    corpus/marks/                  a corpus of the same shape: who speaks, and whether the token bears loss
    corpus/tokenizer/              the tokenizer, to print tokens as text
    corpus/chat.json               what was read, cut and dropped

Both corpora have page hashes, so a changed mark is found as a changed token is. The folder appears when it is complete.
"""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, groupby, islice
from pathlib import Path
from typing import Any, Literal

import numpy as np
from xxhash import xxh3_64_intdigest, xxh3_128_hexdigest

from surefoot.data.formats import open_corpus
from surefoot.data.shards import Corpus, ShardWriter, smallest_dtype, write_manifest
from surefoot.data.tokenize_task import tokenizer_file
from surefoot.data.tokenizer import BYTES, library_tokenizer
from surefoot.errors import DataError
from surefoot.finetuning.chat import ALL_ROLES, ROLES, Conversation, conversation, role_of
from surefoot.finetuning.local_tokenizer import read_tokenizer
from surefoot.finetuning.preference import ANSWERS, is_preference, preference
from surefoot.plain_files import write_whole
from surefoot.records.chat import ChatReport, Lines, Preview, PreviewRun
from surefoot.records.codec import json_lines, read_record, to_json
from surefoot.records.manifest import HELD_OUT, TRAIN, Manifest

MARKS, TOKENIZER, REPORT = "marks", "tokenizer", "chat.json"
FIRST = 5
"""How many lines a report names."""
TooLong = Literal["drop", "cut"]
Group = tuple[Conversation, ...]
"""What one line gives: a conversation, or the two of a preference."""


def write_chat_corpus(
    files: Sequence[str], to: Path, *, model: str, context: int, too_long: TooLong = "drop", held_out: float = 0.0
) -> ChatReport:
    """Turns files of conversations, or of preferences, into a corpus. A conversation has at most `context` tokens.

    Longer ones are dropped, or cut at the end. One without a token that bears loss is dropped. The two answers of a
    preference are dropped together, also if they are equal.
    """
    paths = [Path(each) for each in files]
    if missing := [str(each) for each in paths if not each.is_file()]:
        raise DataError(f"there is no file {missing[0]}")
    if to.exists():
        raise DataError(f"{to} exists; name another folder for this corpus")
    tokenizer, draft = read_tokenizer(model), to.with_name(f".{to.name}.part")
    shutil.rmtree(draft, ignore_errors=True)
    writer = _Writer(draft, smallest_dtype(len(tokenizer)), held_out)
    counts: Counter[str] = Counter()
    noticed, longest = _Noticed(), 0
    try:
        for place, each in _lines(paths, tokenizer):
            counts["read"] += 1
            noticed.add(place, each)
            fitted = _fitted(each, context, too_long, counts)
            if fitted is not None:
                longest = max(longest, *(len(one.tokens) for one in fitted))
                writer.add(fitted)
    except BaseException:
        writer.discard()
        raise
    if not writer.kept:
        shutil.rmtree(draft, ignore_errors=True)
        raise _none_left(counts, noticed, context)
    tokenizer.save_pretrained(str(draft / TOKENIZER))
    report = ChatReport(
        corpus=str(to),
        read=counts["read"],
        kept=writer.kept,
        cut=counts["cut"],
        too_long=counts["too long"],
        without_answer=counts["without answer"],
        context=context,
        longest=longest,
        tokens=sum(writer.by_role.values()),
        bearing_tokens=writer.bearing,
        tokens_by_role=dict(writer.by_role),
        pairs=writer.pairs,
        alike=counts["alike"],
        empty_turns=noticed.lines.pop("", None),
        unwritten=noticed.lines,
    )
    writer.close(len(tokenizer), _digest(draft / TOKENIZER))
    write_whole(draft / REPORT, to_json(report) + "\n", shared=True)
    os.replace(draft, to)  # a rename: a folder of this name is complete, however the process ends
    return report


def _none_left(counts: Counter[str], noticed: _Noticed, context: int) -> DataError:
    what = f"no conversation is left of {counts['read']:,}: {dict(counts)}"
    if empty := noticed.lines.get(""):
        ignored = f"; the chat template does not write {', '.join(n for n in noticed.lines if n)}"
        what += f"; {empty.count:,} with an empty answer, first {empty.first[0]}{ignored * (len(noticed.lines) > 1)}"
    return DataError(f"{what}; is --context {context:,} too small?" if counts["too long"] else what)


def is_chat(corpus: str | Path) -> bool:
    """Whether a corpus holds conversations or preferences."""
    return (marks_of(corpus) / "manifest.json").is_file()


def has_messages(corpus: str | Path) -> bool:
    """Whether a corpus of conversations was written by the chat template: not of prompts and answers as texts alone."""
    return not set(read_report(corpus).tokens_by_role) <= {"prompt", "completion", *ANSWERS}


def holds_pairs(corpus: str | Path) -> bool:
    """Whether a corpus holds preferences."""
    return is_chat(corpus) and read_report(corpus).pairs


def marks_of(corpus: str | Path) -> Path:
    """The folder of a corpus's marks."""
    return Path(corpus) / MARKS


def read_report(corpus: str | Path) -> ChatReport:
    """What became of the conversations of a corpus."""
    return read_record(ChatReport, Path(corpus) / REPORT, error=DataError)


def preview(corpus: str | Path, *, first: int = 0, count: int = 3) -> Preview:
    """Some documents of a corpus as runs of tokens. In a corpus of plain text every token bears loss.

    A preference counts as one and shows two.
    """
    opened = open_corpus(corpus)
    each = 2 if holds_pairs(corpus) else 1
    marks = open_corpus(marks_of(corpus)) if is_chat(corpus) else None
    text = _text_of(Path(corpus), opened.manifest.tokenizer)
    last = opened.manifest.documents  # islice takes no number beyond those of the machine
    wanted = islice(_documents(opened), min(each * first, last), min(each * (first + count), last))
    found = tuple(_runs(opened, marks, shard, begin, end, text) for shard, begin, end in wanted)
    if not found:
        what = "pairs" if each == 2 else "documents"
        raise DataError(f"{corpus} has {opened.manifest.documents // each:,} {what}: there is no number {first}")
    return Preview(str(corpus), found)


def _documents(corpus: Corpus) -> Iterator[tuple[int, int, int]]:
    """Shard, first token and end of each document."""
    for shard in range(len(corpus.manifest.shards)):
        begin = 0
        for end in corpus.ends(shard).tolist():
            yield shard, begin, end
            begin = end


def _runs(
    corpus: Corpus, marks: Corpus | None, shard: int, begin: int, end: int, text: Callable[[int], str]
) -> tuple[PreviewRun, ...]:
    tokens = corpus.tokens(shard, begin, end - begin).tolist()
    all_marks = [1] * len(tokens) if marks is None else marks.tokens(shard, begin, end - begin).tolist()
    groups = groupby(zip(all_marks, tokens, strict=True), key=lambda pair: pair[0])
    return tuple(
        PreviewRun(role_of(mark) if marks else "text", bool(mark & 1), tuple(text(token) for _, token in run))
        for mark, run in groups
    )


def _text_of(corpus: Path, tokenizer: str) -> Callable[[int], str]:
    """How a token is printed."""
    if (corpus / TOKENIZER).is_dir():
        chat = read_tokenizer(str(corpus / TOKENIZER))
        return lambda token: str(chat.decode([token]))
    if tokenizer == BYTES:
        return lambda token: bytes([token]).decode("latin-1") if token < 256 else "<end>"
    file = tokenizer_file(corpus)
    if not file.is_file():
        return lambda token: f"{token} "
    plain = library_tokenizer(file)
    return lambda token: plain.decode([token], skip_special_tokens=False)


def _lines(files: Sequence[Path], tokenizer: Any) -> Iterator[tuple[str, Group]]:
    """The place of every line of JSONL files, and a conversation or the two of a preference. All are of one kind."""
    kinds = set[int]()
    for file in files:
        for number, line in json_lines(file, error=DataError):
            try:
                made = preference(line, tokenizer) if is_preference(line) else (conversation(line, tokenizer),)
            except (DataError, ValueError, TypeError, KeyError) as error:
                raise DataError(f"{file}, line {number}: {error}") from error
            kinds.add(len(made))
            if len(kinds) > 1:
                raise DataError(
                    f"{file}, line {number}: a corpus holds preferences or conversations, not both; make two"
                )
            yield f"{file}:{number}", made


def _fitted(group: Group, context: int, too_long: TooLong, counts: Counter[str]) -> Group | None:
    """The conversations of a line, cut if they must be, or None if they are dropped."""
    if not all(each.bearing for each in group):
        counts["without answer"] += 1
        return None
    cut = tuple(Conversation(each.tokens[:context], each.marks[:context]) for each in group)
    is_cut = any(len(each.tokens) > context for each in group)
    if is_cut and (too_long == "drop" or not all(each.bearing for each in cut)):
        counts["too long"] += 1
        return None
    if len(cut) == 2 and cut[0].tokens == cut[1].tokens:
        counts["alike"] += 1
        return None
    counts["cut"] += is_cut
    return cut


def _digest(folder: Path) -> str:
    content = b"".join(each.name.encode() + each.read_bytes() for each in sorted(folder.iterdir()))
    return f"chat {xxh3_128_hexdigest(content)}"


class _Noticed:
    """The lines of which something is not learned, by the name of that; those with an empty answer by no name."""

    def __init__(self) -> None:
        self.lines: dict[str, Lines] = {}

    def add(self, place: str, group: Group) -> None:
        names = {name for each in group for name in (*each.unwritten, *([""] if each.empty_turns else []))}
        for name in sorted(names):
            known = self.lines.get(name, Lines(0, ()))
            self.lines[name] = Lines(known.count + 1, (*known.first, place)[:FIRST])


class _Writer:
    """Writes conversations and their marks to shards of the same names."""

    def __init__(self, folder: Path, dtype: str, held_out: float) -> None:
        self.folder, self.dtype, self.held_out = folder, dtype, held_out
        self.kept = self.bearing = 0
        self.pairs = False
        self.by_role: Counter[str] = Counter()
        self._shards: dict[str, tuple[ShardWriter, ShardWriter]] = {}

    def add(self, group: Group) -> None:
        """Adds the conversations of a line, all to the same part."""
        tokens = [np.array(each.tokens) for each in group]
        share = xxh3_64_intdigest(b"".join(each.astype("<u4").tobytes() for each in tokens)) / 2**64
        part = HELD_OUT if share < self.held_out else TRAIN
        if part not in self._shards:
            self._shards[part] = (
                ShardWriter(self.folder, part, self.dtype, source="chat", part=part),
                ShardWriter(self.folder / MARKS, part, "uint16", source="chat", part=part),
            )
        for each, values in zip(group, tokens, strict=True):
            for writer, written in zip(self._shards[part], (values, np.array(each.marks)), strict=True):
                writer.add(written)
            self.bearing += each.bearing
            self.by_role.update(role_of(mark) for mark in each.marks)
        self.kept += 1
        self.pairs = len(group) == 2

    def discard(self) -> None:
        """Leaves nothing behind."""
        for writer in chain.from_iterable(self._shards.values()):
            writer.discard()
        shutil.rmtree(self.folder, ignore_errors=True)

    def close(self, vocabulary: int, tokenizer: str) -> None:
        roles = 2 * len(ALL_ROLES if self.pairs else ROLES)
        for number, (folder, size, dtype) in enumerate(
            ((self.folder, vocabulary, self.dtype), (self.folder / MARKS, roles, "uint16"))
        ):
            shards: list[Any] = [self._shards[part][number].close() for part in sorted(self._shards)]
            write_manifest(
                folder,
                Manifest(
                    dtype=dtype,  # type: ignore[arg-type]
                    vocabulary=size,
                    tokenizer=tokenizer,
                    end_of_document=-1,
                    shards=tuple(shards),
                ),
            )
