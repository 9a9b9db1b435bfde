"""A corpus of conversations, preferences or texts: tokens, and beside them a corpus with a mark for each token.

    corpus/manifest.json, *.ds     the tokens, a document per conversation; of a preference two, the better one first
    corpus/marks/                  a corpus of the same shape: who speaks, and whether the token bears loss
    corpus/tokenizer/              the tokenizer, to print tokens as text
    corpus/chat.json               what was read, cut, split and dropped

Both corpora have page hashes, so a changed mark is found as a changed token is. The folder appears when it is complete.
"""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, groupby, islice
from pathlib import Path
from typing import Any, Literal

import numpy as np
from xxhash import xxh3_64_intdigest, xxh3_128_hexdigest

from surefoot.data.formats import open_corpus
from surefoot.data.record_files import HELD_OUT_NAMES, Place, rows_of, splits_of
from surefoot.data.shards import Corpus, ShardWriter, smallest_dtype, write_manifest
from surefoot.data.tokenize_task import tokenizer_file
from surefoot.data.tokenizer import BYTES, library_tokenizer
from surefoot.errors import DataError
from surefoot.finetuning.chat import (
    ALL_ROLES,
    ROLES,
    Conversation,
    conversation,
    has_template,
    role_of,
    text_pieces,
)
from surefoot.finetuning.hub import pinned
from surefoot.finetuning.local_tokenizer import read_tokenizer
from surefoot.finetuning.preference import ANSWERS, is_preference, preference
from surefoot.finetuning.shapes import TEXT, shaped
from surefoot.plain_files import write_whole
from surefoot.records.chat import ChatReport, Lines, Preview, PreviewRun
from surefoot.records.codec import read_record, to_json
from surefoot.records.manifest import HELD_OUT, TRAIN, Manifest

MARKS, TOKENIZER, REPORT = "marks", "tokenizer", "chat.json"
FIRST = 5
"""How many lines a report names."""
CUT, TOO_LONG, WITHOUT_ANSWER, ALIKE, SPLIT = "cut", "too long", "without answer", "alike", "split"
OTHER = "other reasons"
TooLong = Literal["drop", "cut"]
Broken = Literal["stop", "skip"]
Group = tuple[Conversation, ...]
"""A conversation, or the two of a preference."""


@dataclass(frozen=True)
class Made:
    """What one line gives: a conversation, a preference, or the pieces of a text."""

    place: Place
    part: str
    """Empty if a hash decides."""
    shape: str
    groups: list[Group]


def write_chat_corpus(
    files: Sequence[str],
    to: Path,
    *,
    model: str,
    context: int,
    too_long: TooLong = "drop",
    held_out: float = 0.0,
    broken: Broken = "stop",
    called: str = "",
) -> ChatReport:
    """Turns files of conversations, preferences or texts into a corpus. A conversation has at most `context` tokens.

    Longer ones are dropped, or cut at the end; texts are split. One without a token that bears loss is dropped. The two
    answers of a preference are dropped together, also if they are equal. A line that cannot be read ends it; with
    `broken="skip"` it is counted. Without `held_out`, a validation split of the files is the held-out part. `called` is
    what the report calls the corpus.
    """
    if to.exists():
        raise DataError(f"{to} exists; name another folder for this corpus")
    read, unread = _splits([Path(each) for each in files], separate=not held_out)
    tokenizer, draft = read_tokenizer(pinned(model)), to.with_name(f".{to.name}.part")
    shutil.rmtree(draft, ignore_errors=True)
    writer, tally = _Writer(draft, smallest_dtype(len(tokenizer)), held_out), _Tally(context, too_long)
    try:
        for line in _lines(read, tokenizer, context, tally if broken == "skip" else None):
            for group in tally.fitted(line):
                writer.add(group, line.part)
    except BaseException:
        writer.discard()
        raise
    if not tally.kept:
        shutil.rmtree(draft, ignore_errors=True)
        raise _none_left(tally)
    tokenizer.save_pretrained(str(draft / TOKENIZER))
    report = ChatReport(
        corpus=called or str(to),
        read=tally.read,
        kept=tally.kept,
        cut=tally.count(CUT),
        too_long=tally.count(TOO_LONG),
        without_answer=tally.count(WITHOUT_ANSWER),
        context=context,
        longest=tally.longest,
        tokens=sum(writer.by_role.values()),
        bearing_tokens=writer.bearing,
        tokens_by_role=dict(writer.by_role),
        pairs=writer.pairs,
        alike=tally.count(ALIKE),
        empty_turns=tally.noticed.lines.pop("", None),
        unwritten=tally.noticed.lines,
        shapes=dict(tally.shapes),
        which=tally.became.lines,
        broken=tally.broken.lines,
        parts=dict(writer.parts),
        unread=unread,
    )
    writer.close(len(tokenizer), _digest(draft / TOKENIZER))
    write_whole(draft / REPORT, to_json(report) + "\n", shared=True)
    os.replace(draft, to)  # a rename: a folder of this name is complete, however the process ends
    return report


def _splits(paths: Sequence[Path], *, separate: bool) -> tuple[list[tuple[str, Path]], tuple[str, ...]]:
    """The files to read, each with its part, and the names of splits that are not read."""
    read, unread = list[tuple[str, Path]](), list[str]()
    for path in paths:
        splits = splits_of(path)
        train = TRAIN if TRAIN in splits else next(iter(splits)) if len(splits) == 1 else None
        if train is None:
            raise DataError(f"{path} has no split `train`, but {', '.join(splits)}; name the folder or file of one")
        held = next((name for name in HELD_OUT_NAMES if separate and name in splits and name != train), None)
        read += [(TRAIN if held else "", file) for file in splits[train]]
        read += [(HELD_OUT, file) for file in (splits[held] if held else ())]
        unread += [name for name in splits if name not in (train, held)]
    return read, tuple(unread)


def _none_left(tally: _Tally) -> DataError:
    lost = {name: lines.count for name, lines in tally.became.lines.items()}
    what = f"no conversation is left of {tally.read:,}: {lost}"
    for why, lines in tally.broken.lines.items():
        what += f"; {lines.count:,} broken, first {lines.first[0]}: {why}"
    noticed = tally.noticed.lines
    if empty := noticed.get(""):
        ignored = f"; the chat template does not write {', '.join(n for n in noticed if n)}"
        what += f"; {empty.count:,} with an empty answer, first {empty.first[0]}{ignored * (len(noticed) > 1)}"
    return DataError(f"{what}; is a context of {tally.context:,} too small?" if tally.count(TOO_LONG) else what)


def is_chat(corpus: str | Path) -> bool:
    """Whether a corpus holds conversations or preferences."""
    return (marks_of(corpus) / "manifest.json").is_file()


def has_messages(corpus: str | Path) -> bool:
    """Whether a corpus of conversations was written by the chat template: not of prompts and answers as texts alone."""
    return not set(read_report(corpus).tokens_by_role) <= {"prompt", "completion", "text", *ANSWERS}


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


def _lines(files: Sequence[tuple[str, Path]], tokenizer: Any, context: int, skipped: _Tally | None) -> Iterator[Made]:
    """What each line of the files gives. All are preferences, or none is."""
    kinds = set[int]()
    for part, file in files:
        for place, row in rows_of(file):
            try:
                shape, groups = _made(row, tokenizer, context)
            except (DataError, ValueError, TypeError, KeyError) as error:
                if skipped is None:
                    raise DataError(f"{place.in_words}: {error}; broken=skip leaves such lines out") from error
                skipped.leave_out(place, str(error))
                continue
            kinds.add(len(groups[0]))
            if len(kinds) > 1:
                raise DataError(f"{place.in_words}: a corpus holds preferences or conversations, not both; make two")
            yield Made(place, part, shape, groups)


def _made(row: Any, tokenizer: Any, context: int) -> tuple[str, list[Group]]:
    """The shape of a row, and what it gives."""
    if isinstance(row, DataError):
        raise row
    shape, line = shaped(row, templated=has_template(tokenizer))
    if shape == TEXT:
        return shape, [(piece,) for piece in text_pieces(line["text"], tokenizer, context)]
    return shape, [preference(line, tokenizer) if is_preference(line) else (conversation(line, tokenizer),)]


def _digest(folder: Path) -> str:
    content = b"".join(each.name.encode() + each.read_bytes() for each in sorted(folder.iterdir()))
    return f"chat {xxh3_128_hexdigest(content)}"


class _Noticed:
    """Lines by the name of what is noticed of them. The first few are kept, the others counted."""

    def __init__(self) -> None:
        self.lines: dict[str, Lines] = {}

    def add(self, place: Place, name: str) -> None:
        known = self.lines.get(name, Lines(0, ()))
        self.lines[name] = Lines(known.count + 1, (*known.first, str(place))[:FIRST])


class _Tally:
    """What became of each line."""

    def __init__(self, context: int, too_long: TooLong) -> None:
        self.context, self.too_long = context, too_long
        self.read = self.kept = self.longest = 0
        self.shapes = Counter[str]()
        self.became, self.broken = _Noticed(), _Noticed()
        self.noticed = _Noticed()
        """Lines of which something is not learned, by its name. Those with an empty answer have no name."""

    def count(self, name: str) -> int:
        return self.became.lines.get(name, Lines(0, ())).count

    def leave_out(self, place: Place, why: str) -> None:
        """Counts a line that cannot be read."""
        self.read += 1
        known = why in self.broken.lines or len(self.broken.lines) < FIRST
        self.broken.add(place, why if known else OTHER)

    def fitted(self, line: Made) -> list[Group]:
        """What is kept of a line, cut if it must be."""
        self.read += 1
        self.shapes[line.shape] += 1
        each = [one for group in line.groups for one in group]
        for name in sorted({name for one in each for name in (*one.unwritten, *([""] if one.empty_turns else []))}):
            self.noticed.add(line.place, name)
        became, kept = self._fate(line.groups[0]) if len(line.groups) == 1 else (SPLIT, line.groups)
        if became:
            self.became.add(line.place, became)
        self.kept += bool(kept)
        self.longest = max([self.longest, *(len(one.tokens) for group in kept for one in group)])
        return kept

    def _fate(self, group: Group) -> tuple[str, list[Group]]:
        """What becomes of a conversation or preference, and what is left of it."""
        if not all(each.bearing for each in group):
            return WITHOUT_ANSWER, []
        if all(len(each.tokens) <= self.context for each in group):
            cut, became = group, ""
        else:
            cut = tuple(Conversation(each.tokens[: self.context], each.marks[: self.context]) for each in group)
            became = CUT
            if self.too_long == "drop" or not all(each.bearing for each in cut):
                return TOO_LONG, []
        return (ALIKE, []) if len(cut) == 2 and cut[0].tokens == cut[1].tokens else (became, [cut])


class _Writer:
    """Writes conversations and their marks to shards of the same names."""

    def __init__(self, folder: Path, dtype: str, held_out: float) -> None:
        self.folder, self.dtype, self.held_out = folder, dtype, held_out
        self.bearing = 0
        self.pairs = False
        self.by_role: Counter[str] = Counter()
        self.parts: Counter[str] = Counter()
        self._shards: dict[str, tuple[ShardWriter, ShardWriter]] = {}

    def add(self, group: Group, part: str = "") -> None:
        """Adds a conversation, or both of a preference, to a part. Without its name, the hash decides."""
        tokens = [np.array(each.tokens) for each in group]
        share = xxh3_64_intdigest(b"".join(each.astype("<u4").tobytes() for each in tokens)) / 2**64
        part = part or (HELD_OUT if share < self.held_out else TRAIN)
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
        self.parts[part] += 1
        self.pairs = len(group) == 2

    def discard(self) -> None:
        """Leaves nothing behind."""
        for writer in chain.from_iterable(self._shards.values()):
            writer.discard()
        shutil.rmtree(self.folder, ignore_errors=True)

    def close(self, vocabulary: int, tokenizer: str) -> None:
        roles = 2 * (len(ROLES) if set(self.by_role) <= set(ROLES) else len(ALL_ROLES))
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
