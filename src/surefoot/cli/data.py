"""The commands `surefoot data tokenize | chat | reference | preview | inspect | verify | count`: prepare tokens."""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from surefoot.cli.commands import Commands
from surefoot.cli.shared import JsonOption
from surefoot.records.codec import to_json
from surefoot.reports.console import PlainConsole

if TYPE_CHECKING:
    from rich.progress import Progress

app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    help="Turns text into tokens on disk, and checks and counts them before a run.",
    rich_markup_mode="markdown",
)

CorpusArgument = Annotated[
    Path, typer.Argument(metavar="CORPUS", help="a folder with a manifest.json, or one file of tokens")
]
DtypeOption = Annotated[str, typer.Option(help="type of the tokens if the file does not name it: uint16, uint32")]
VocabularyOption = Annotated[int, typer.Option(min=0, help="vocabulary size of tokens that surefoot did not write")]


@app.command()
def tokenize(
    paths: Annotated[
        list[str], typer.Argument(metavar="FOLDER|GLOB...", help="text, .jsonl or .parquet; name=path names a source")
    ],
    to: Annotated[Path, typer.Option("--to", metavar="CORPUS", help="folder for the corpus")],
    tokenizer: Annotated[
        str, typer.Option(help="bytes, bpe:SIZE (learned from the text itself) or a tokenizer.json")
    ] = "bytes",
    held_out: Annotated[float, typer.Option(min=0, max=0.5, help="share of the documents to hold out")] = 0.0,
    audit: Annotated[
        float, typer.Option(min=0, max=1, help="share of the documents to check with the reference tokenizer")
    ] = 0.005,
    workers: Annotated[int, typer.Option(min=1, help="number of processes")] = 1,
    text_key: Annotated[str, typer.Option(help="field of .jsonl and .parquet that holds the text")] = "text",
    end_of_document: Annotated[
        str, typer.Option(help="special token after every document, if surefoot does not find it")
    ] = "",
    json: JsonOption = False,
) -> None:
    """Turns text into a corpus of tokens.

    If it is killed, run the same command again: it does the rest, and the corpus is the same bit for bit.

    Example: `surefoot data tokenize books/ code=src/**/*.py --to corpus --tokenizer bpe:16384 --held-out 0.01`
    """
    from surefoot.data.tokenize import TaskProgress
    from surefoot.data.tokenize import tokenize as work
    from surefoot.reports.data import manifest_text

    with _bar("tokenize", "{task.completed:.0f} of {task.total:.0f} tasks, {task.fields[note]}") as bar:
        task = bar.add_task("", total=1, note="")

        def tell(now: TaskProgress) -> None:
            bar.update(
                task, completed=now.tasks_done, total=now.tasks, note=f"{now.token_bytes / 1e6:,.1f} MB of tokens"
            )

        manifest = work(
            paths,
            to,
            tokenizer=tokenizer,
            end_of_document=end_of_document,
            held_out=held_out,
            audit=audit,
            text_key=text_key,
            workers=workers,
            tell=tell,
        )
    _show(manifest, manifest_text, json=json)


@app.command()
def chat(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE...", help="JSON lines, a JSON list, Parquet, Arrow, or a folder of them, as people write them"
        ),
    ],
    model: Annotated[
        Path, typer.Option("--model", metavar="DIR", help="folder with the model's tokenizer and template")
    ],
    to: Annotated[Path, typer.Option("--to", metavar="CORPUS", help="folder for the corpus")],
    context: Annotated[int, typer.Option(min=2, help="the most tokens of a conversation")],
    too_long: Annotated[str, typer.Option(help="what to do with longer ones: drop, or cut at the end")] = "drop",
    held_out: Annotated[float, typer.Option(min=0, max=0.5, help="share of the conversations to hold out")] = 0.0,
    broken: Annotated[str, typer.Option(help="what to do at a line that cannot be read: stop, or skip it")] = "stop",
    json: JsonOption = False,
) -> None:
    """Turns conversations into a corpus by the tokenizer's own chat template. Only the assistant's tokens bear loss.

    It recognises messages with tools, ShareGPT, Alpaca, questions and answers, preferences and plain text. Preferences
    are what `finetune` learns from with `loss=dpo`. `surefoot data preview CORPUS` shows which tokens bear loss.

    Example: `surefoot data chat train.jsonl --model llama/ --to corpus --context 2048`
    """
    from typing import get_args

    from surefoot.finetuning.chat_corpus import Broken, TooLong, write_chat_corpus
    from surefoot.reports.chat import chat_text

    for name, given, known in (("--too-long", too_long, TooLong), ("--broken", broken, Broken)):
        if given not in get_args(known):
            raise typer.BadParameter(f"{name} is one of {', '.join(get_args(known))}, not {given!r}")
    made = write_chat_corpus(
        files,
        to,
        model=str(model),
        context=context,
        too_long=too_long,  # type: ignore[arg-type]
        held_out=held_out,
        broken=broken,  # type: ignore[arg-type]
    )
    _show(made, chat_text, json=json)


@app.command()
def reference(
    corpus: CorpusArgument,
    model: Annotated[Path, typer.Option("--model", metavar="DIR", help="folder of the model that will be trained")],
    precision: Annotated[
        str, typer.Option(help="of the training: 32-true, bf16-mixed, 16-mixed, bf16-true")
    ] = "32-true",
    micro_batch_size: Annotated[int, typer.Option(min=1, help="pairs in one forward")] = 8,
    json: JsonOption = False,
) -> None:
    """Computes the log-probabilities of preferences under the model before training, and keeps them in the corpus.

    `finetune loss=dpo` needs them for methods without adapters. With adapters it switches those off instead.

    Example: `surefoot data reference corpus --model llama/`
    """
    from typing import get_args

    from surefoot.data.formats import open_corpus
    from surefoot.recipe.recipe import Precision
    from surefoot.training.reference import reference as way

    if precision not in get_args(Precision):
        raise typer.BadParameter(f"--precision is one of {', '.join(get_args(Precision))}, not {precision!r}")
    with _bar("reference", "{task.completed:.0f} of {task.total:.0f} pairs") as bar:
        task = bar.add_task("", total=open_corpus(corpus).manifest.documents // 2)
        made = way(
            str(corpus),
            model=str(model),
            precision=precision,  # type: ignore[arg-type]
            micro_batch_size=micro_batch_size,
            tell=lambda pairs: bar.advance(task, pairs),
        )
    _show(made, lambda _: f"{corpus}: log-probabilities of {made.pairs:,} pairs under {model}", json=json)


@app.command()
def preview(
    corpus: CorpusArgument,
    first: Annotated[int, typer.Option(min=0, help="the first document to show")] = 0,
    count: Annotated[int, typer.Option(min=1, help="how many documents to show")] = 3,
    json: JsonOption = False,
) -> None:
    """Prints documents of a corpus as text, with the tokens that bear loss in colour and between [[ and ]].

    Example: `surefoot data preview corpus --count 2`
    """
    from surefoot.finetuning.chat_corpus import preview as work
    from surefoot.reports.chat import preview_text

    _show(work(corpus, first=first, count=count), preview_text, json=json)


@app.command()
def inspect(
    corpus: CorpusArgument,
    context: Annotated[int | None, typer.Option(min=1, help="context length of the model")] = None,
    dtype: DtypeOption = "",
    vocabulary: VocabularyOption = 0,
    json: JsonOption = False,
) -> None:
    """Shows what a corpus holds, and finds what would train a model on wrong numbers without an exception.

    Exits with 1 if any finding is an error.

    Example: `surefoot data inspect corpus --context 1024`
    """
    from surefoot.data.formats import open_corpus
    from surefoot.data.inspect import inspect_corpus
    from surefoot.reports.data import manifest_text
    from surefoot.reports.findings import findings_text

    opened = open_corpus(corpus, dtype=dtype, vocabulary=vocabulary)
    with _bar("inspect", "{task.percentage:.0f}%") as bar:
        task = bar.add_task("", total=2 * opened.manifest.tokens)
        findings = inspect_corpus(opened, context=context, tell=lambda tokens: bar.advance(task, tokens))
    record = {"manifest": opened.manifest, "findings": findings}
    if not json:
        PlainConsole().print(manifest_text(opened.manifest))
    _show(record, lambda _: findings_text(findings), json=json)
    raise typer.Exit(1 if findings.errors else 0)


@app.command()
def verify(
    corpus: CorpusArgument,
    adopt: Annotated[bool, typer.Option("--adopt", help="first hash tokens that surefoot did not write")] = False,
    dtype: DtypeOption = "",
    vocabulary: VocabularyOption = 0,
    json: JsonOption = False,
) -> None:
    """Reads every page of a corpus and compares it with its hash.

    Fails with the shard, page and offset of the first damage.

    Example: `surefoot data verify corpus`
    """
    from surefoot.data.formats import adopt as adopt_tokens
    from surefoot.data.formats import open_corpus
    from surefoot.data.pages import check_all
    from surefoot.errors import DataError
    from surefoot.finetuning.chat_corpus import is_chat, marks_of

    if adopt:
        adopt_tokens(corpus, dtype=dtype, vocabulary=vocabulary)
    opened = open_corpus(corpus)
    if not opened.verified:
        raise DataError(f"{corpus} has no page hashes to verify; add --adopt to write them beside the files")
    beside = [open_corpus(marks_of(corpus))] if is_chat(corpus) else []
    files = size = 0
    with _bar("verify", "{task.percentage:.0f}%") as bar:
        task = bar.add_task("", total=opened.manifest.tokens * opened.item_bytes + 8 * opened.manifest.documents)
        for file in chain(opened.files(), *(each.files() for each in beside)):
            files += 1
            for checked in check_all(file):
                size += checked
                bar.advance(task, checked)
    record = {"corpus": str(corpus), "files": files, "bytes": size, "identity": opened.identity()}
    _show(record, lambda _: f"{corpus}: {files:,} files, {size:,} bytes, every page matches its hash", json=json)


@app.command()
def count(
    corpus: CorpusArgument,
    context: Annotated[int | None, typer.Option(min=1, help="length of a window in tokens")] = None,
    packed: Annotated[bool, typer.Option("--packed", help="pack whole documents instead of cutting windows")] = False,
    max_tokens: Annotated[int | None, typer.Option(min=1, help="positions to train on; default: one epoch")] = None,
    parameters: Annotated[int | None, typer.Option(min=1, help="parameters of the model")] = None,
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="seed of the run")] = 0,
    json: JsonOption = False,
) -> None:
    """Counts the tokens of a corpus by source and, with `--context`, how a run uses them.

    Example: `surefoot data count corpus --context 1024 --max-tokens 1000000000 --parameters 124000000`
    """
    from surefoot.data.formats import open_corpus
    from surefoot.reports.data import manifest_text, token_ledger_text

    opened = open_corpus(corpus)
    if context is None:
        _show(opened.manifest, manifest_text, json=json)
        return
    from surefoot.data.packing import PackedDocuments
    from surefoot.data.token_ledger import token_ledger
    from surefoot.data.windows import TokenWindows

    train = opened.only("train") if opened.manifest.only("train").shards else opened
    data = PackedDocuments(train, context) if packed else TokenWindows(train, context)
    samples = len(data) if max_tokens is None else -(-max_tokens // context)
    with _bar("count", "{task.percentage:.0f}%") as bar:
        task = bar.add_task("", total=samples % len(data) or None)
        ledger = token_ledger(data, samples, seed=seed, tell=lambda done: bar.advance(task, done))
    record = {"ledger": ledger, "totals": ledger.totals(parameters)}
    _show(record, lambda _: token_ledger_text(ledger, parameters), json=json)


def _bar(name: str, text: str) -> Progress:
    """A progress bar on a terminal; nothing elsewhere."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn  # not for the help

    console = PlainConsole(stderr=True)
    columns = (TextColumn(f"[bold]{name}"), BarColumn(), TextColumn(text), TimeRemainingColumn())
    return Progress(*columns, console=console, disable=not console.is_terminal, transient=True)


def _show(record: Any, text: Any, *, json: bool) -> None:
    if json:
        print(to_json(record))
    elif record is not None:
        PlainConsole().print(text(record))
