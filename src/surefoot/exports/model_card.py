"""The model card: what an exported model is, what it learned from, what it scored, and how its files were checked."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from surefoot.costs.ledgers import ledger_of
from surefoot.finetuning.hub import is_of_hub, licence_of
from surefoot.records.export import Export
from surefoot.records.plan import read_plan
from surefoot.records.run import Run
from surefoot.units import amount_text, bytes_text, counted, knobs_text, seconds_text

CARD = "README.md"


def card_of(run: Run, export: Export, *, library: str = "pytorch") -> str:
    """A page of Markdown, with the front matter that Hugging Face's hub reads."""
    base = str(run.settings.get("init_from") or "")
    return "\n".join(
        (
            "---",
            f"library_name: {library}",
            *_of_base(base),
            f"tags: [{json.dumps(run.recipe)}, surefoot]",
            "---",
            "",
            f"# {_plain(run.recipe)}",
            "",
            *([_plain(f"It learned {run.about}."), ""] if run.about else ()),
            "| what | value |",
            "|---|---|",
            *(f"| {name} | {_plain(value)} |" for name, value in _facts(run, export)),
            "",
            "## Files",
            "",
            "Each file was read back or run, and its outputs compared with those of the trained model.",
            "",
            "| file | size | largest difference, relative | tolerance |",
            "|---|---|---|---|",
            *(f"| {' | '.join(map(_plain, row))} |" for row in _files(export)),
            "",
            *_quantised(export),
            *_gguf(export),
            *_ledger(run),
        )
    )


def _of_base(base: str) -> Iterator[str]:
    """Of a model of the hub, its name and the licence that it states."""
    if is_of_hub(base):
        yield f"base_model: {json.dumps(base.partition('@')[0])}"
        if licence := licence_of(base):
            yield f"license: {json.dumps(licence)}"


def _facts(run: Run, export: Export) -> Iterator[tuple[str, str]]:
    yield "recipe", run.target or run.recipe
    yield "knobs", knobs_text(run.knobs) or "none"
    yield "parameters", f"{run.parameters:,}"
    yield "trained on", f"{counted(run.tokens, run.unit)} in {counted(run.steps, 'step')}, {seconds_text(run.seconds)}"
    yield "device", f"{run.device}, torch {run.torch_version}"
    if run.weights_step and run.weights_step != run.steps:
        yield "weights of step", str(run.weights_step)
    if run.data_identity is not None:
        yield "data", str(run.data_identity)
    if run.last_loss is not None:
        yield "last training loss", f"{run.last_loss:.6g}"
    if run.evaluation_loss is not None:
        yield "held-out loss", f"{run.evaluation_loss:.6g}"
    yield from ((f"held-out {name}", f"{value:.6g}") for name, value in run.metrics.items())
    for data, scores in run.tests.items():
        yield from ((f"{data}: {name}", f"{value:.6g}") for name, value in scores.items())
    yield "inputs of the example call", ", ".join(export.inputs)
    yield "digest of the weights", f"xxh3_128 {export.weights_digest}"
    yield "digest of the recipe's code", run.source_digest or "none"


def _files(export: Export) -> Iterator[tuple[str, str, str, str]]:
    tolerance = f"{export.tolerance:.0e}"
    yield Path(export.weights).name, bytes_text(export.weights_bytes), f"{export.weights_difference:.2g}", tolerance
    if export.program:
        yield Path(export.program).name, bytes_text(export.program_bytes), f"{export.program_difference:.2g}", tolerance
    for each in export.formats:
        if not each.reason:
            name = f"{Path(each.path).name} ({each.note})" if each.note else Path(each.path).name
            yield name, bytes_text(each.bytes), f"{each.difference:.2g}, in {each.compared}", f"{each.tolerance:.2g}"


def _quantised(export: Export) -> list[str]:
    """What int8 weights cost, if they were written."""
    made = export.quantised
    if made is None:
        return []
    rows = (f"| {_plain(name)} | {value:.6g} | {made.after[name]:.6g} |" for name, value in made.before.items())
    scored = [f"On the data `{_plain(made.data)}`:", "", "| figure | as trained | int8 |", "|---|---|---|", *rows]
    return [
        "## Int8 weights",
        "",
        f"`{Path(made.path).name}` has {made.parameters:,} of {made.of_parameters:,} parameters in int8, in "
        f"{counted(made.layers, 'linear layer')}, and takes {bytes_text(made.bytes)} in place of "
        f"{bytes_text(export.weights_bytes)}. Its kind is {made.kind}. Outputs differ by up to "
        f"{made.output_difference:.2g} of the largest.",
        "",
        *(scored if made.data else ["Its cost is not known: the recipe has no held-out and no test data."]),
        "",
    ]


def _gguf(export: Export) -> list[str]:
    """What GGUF files in fewer bits cost, if they were written."""
    made = [each for each in export.quantised_gguf if not each.reason]
    if not made:
        return []
    rows = (
        f"| {_plain(Path(each.path).name)} | {bytes_text(each.bytes)} | {each.rounding:.2g} | "
        f"{_perplexity(each.before)} | {_perplexity(each.after)} |"
        for each in made
    )
    scored = f"Perplexity is that of llama.cpp on {made[0].tokens:,} tokens of the data `{_plain(made[0].data)}`."
    return [
        "## GGUF in fewer bits",
        "",
        f"Made by llama.cpp's quantiser ({made[0].quantiser}). Every tensor was read back. {scored}",
        "",
        "| file | size | largest rounding of a tensor | perplexity in float32 | perplexity |",
        "|---|---|---|---|---|",
        *rows,
        "",
    ]


def _perplexity(value: float | None) -> str:
    return "not known" if value is None else f"{value:.6g}"


def _ledger(run: Run) -> list[str]:
    """Predicted and measured, if the run was planned."""
    entries = [each for each in ledger_of(read_plan(Path(run.path)), run=run).entries if each.measured is not None]
    if not entries:
        return []
    rows = (
        f"| {_plain(each.account)} | {'-' if each.predicted is None else amount_text(each.predicted, each.unit)} "
        f"| {amount_text(each.measured, each.unit)} |"
        for each in entries
        if each.measured is not None
    )
    return ["## Ledger", "", "| account | predicted | measured |", "|---|---|---|", *rows, ""]


def _plain(text: str) -> str:
    """Text of a record, which may not end a cell or begin markup."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")
