"""A corpus of conversations: tokens, and beside them a second corpus with a mark for each token.

    corpus/manifest.json, *.ds     the tokens, a document per conversation
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
from itertools import groupby, islice
from pathlib import Path
from typing import Any, Literal

import numpy as np
from xxhash import xxh3_64_intdigest, xxh3_128_hexdigest

from surefoot.data.formats import open_corpus
from surefoot.data.shards import Corpus, ShardWriter, smallest_dtype, write_manifest
from surefoot.data.tokenize_task import tokenizer_file
from surefoot.data.tokenizer import BYTES, need
from surefoot.errors import DataError
from surefoot.finetuning.chat import ROLES, Conversation, conversations, role_of
from surefoot.finetuning.local_tokenizer import read_tokenizer
from surefoot.records.chat import ChatReport, Preview, PreviewRun
from surefoot.records.codec import read_record, to_json
from surefoot.records.files import write_whole
from surefoot.records.manifest import HELD_OUT, TRAIN, Manifest

MARKS, TOKENIZER, REPORT = "marks", "tokenizer", "chat.json"
TooLong = Literal["drop", "cut"]


def write_chat_corpus(
    files: Sequence[str], to: Path, *, model: str, context: int, too_long: TooLong = "drop", held_out: float = 0.0
) -> ChatReport:
    """Turns files of conversations into a corpus. A conversation has at most `context` tokens.

    Longer ones are dropped, or cut at the end. One without a token that bears loss is dropped.
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
    longest = 0
    for path in paths:
        for each in conversations(path, tokenizer):
            counts["read"] += 1
            fitted = _fitted(each, context, too_long, counts)
            if fitted is not None:
                longest = max(longest, len(fitted.tokens))
                writer.add(fitted)
    if not writer.kept:
        shutil.rmtree(draft, ignore_errors=True)
        raise DataError(
            f"no conversation is left of {counts['read']:,}: {dict(counts)}; is --context {context:,} too small?"
        )
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
    )
    writer.close(len(tokenizer), _digest(draft / TOKENIZER))
    write_whole(draft / REPORT, to_json(report) + "\n")
    os.replace(draft, to)
    return report


def is_chat(corpus: str | Path) -> bool:
    """Whether a corpus holds conversations."""
    return (marks_of(corpus) / "manifest.json").is_file()


def marks_of(corpus: str | Path) -> Path:
    """The folder of a corpus's marks."""
    return Path(corpus) / MARKS


def read_report(corpus: str | Path) -> ChatReport:
    """What became of the conversations of a corpus."""
    return read_record(ChatReport, Path(corpus) / REPORT, error=DataError)


def preview(corpus: str | Path, *, first: int = 0, count: int = 3) -> Preview:
    """Some documents of a corpus as runs of tokens. In a corpus of plain text every token bears loss."""
    opened = open_corpus(corpus)
    marks = open_corpus(marks_of(corpus)) if is_chat(corpus) else None
    text = _text_of(Path(corpus), opened.manifest.tokenizer)
    wanted = islice(_documents(opened), first, first + count)
    found = tuple(_runs(opened, marks, shard, begin, end, text) for shard, begin, end in wanted)
    if not found:
        raise DataError(f"{corpus} has {opened.manifest.documents:,} documents: there is no document {first}")
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
    plain = need("tokenizers").Tokenizer.from_file(str(file))
    return lambda token: plain.decode([token], skip_special_tokens=False)


def _fitted(each: Conversation, context: int, too_long: TooLong, counts: Counter[str]) -> Conversation | None:
    """The conversation, cut if it must be, or None if it is dropped."""
    if not each.bearing:
        counts["without answer"] += 1
        return None
    if len(each.tokens) <= context:
        return each
    cut = Conversation(each.tokens[:context], each.marks[:context])
    if too_long == "drop" or not cut.bearing:
        counts["too long"] += 1
        return None
    counts["cut"] += 1
    return cut


def _digest(folder: Path) -> str:
    content = b"".join(each.name.encode() + each.read_bytes() for each in sorted(folder.iterdir()))
    return f"chat {xxh3_128_hexdigest(content)}"


class _Writer:
    """Writes conversations and their marks to shards of the same names."""

    def __init__(self, folder: Path, dtype: str, held_out: float) -> None:
        self.folder, self.dtype, self.held_out = folder, dtype, held_out
        self.kept = self.bearing = 0
        self.by_role: Counter[str] = Counter()
        self._shards: dict[str, tuple[ShardWriter, ShardWriter]] = {}

    def add(self, each: Conversation) -> None:
        tokens, marks = np.array(each.tokens), np.array(each.marks)
        share = xxh3_64_intdigest(tokens.astype("<u4").tobytes()) / 2**64
        part = HELD_OUT if share < self.held_out else TRAIN
        if part not in self._shards:
            self._shards[part] = (
                ShardWriter(self.folder, part, self.dtype, source="chat", part=part),
                ShardWriter(self.folder / MARKS, part, "uint16", source="chat", part=part),
            )
        for writer, values in zip(self._shards[part], (tokens, marks), strict=True):
            writer.add(values)
        self.kept += 1
        self.bearing += each.bearing
        self.by_role.update(role_of(mark) for mark in each.marks)

    def close(self, vocabulary: int, tokenizer: str) -> None:
        for number, (folder, size, dtype) in enumerate(
            ((self.folder, vocabulary, self.dtype), (self.folder / MARKS, 2 * len(ROLES), "uint16"))
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
