"""Conversations as text: what was kept and dropped, tokens by role, and which tokens bear loss."""

from collections.abc import Iterator, Mapping

from rich.console import Group, RenderableType
from rich.text import Text

from surefoot.records.chat import ChatReport, Lines, Preview
from surefoot.reports.parts import table_of
from surefoot.units import counted

BEARS, WORSE, SILENT = "bold green", "bold red", "dim"
_BECAME = {
    "cut": "cut at the end",
    "too long": "dropped, too long",
    "without answer": "dropped, no answer",
    "alike": "dropped, both answers the same",
    "split": "split into pieces of the context",
}


def chat_text(report: ChatReport) -> RenderableType:
    """What became of the conversations, and who wrote the tokens."""
    table = table_of("role", "tokens", "share")
    for role, tokens in sorted(report.tokens_by_role.items(), key=lambda each: -each[1]):
        table.add_row(role, f"{tokens:,}", f"{tokens / report.tokens:.1%}")
    lost = [
        f"{report.too_long:,} dropped with more than {report.context:,} tokens" if report.too_long else "",
        f"{report.without_answer:,} dropped without an answer" if report.without_answer else "",
        f"{report.alike:,} dropped with twice the same answer" if report.alike else "",
        f"{report.cut:,} cut to {report.context:,} tokens" if report.cut else "",
        f"{_count(report.broken):,} skipped as broken" if report.broken else "",
    ]
    said = "; ".join(filter(None, lost)) or "none cut or dropped"
    what = "pair" if report.pairs else "text" if set(report.shapes) == {"text"} else "conversation"
    return Group(
        Text(f"{report.corpus}: {report.kept:,} of {counted(report.read, what)} kept; {said}"),
        table,
        Text(
            f"{report.bearing_tokens:,} of {report.tokens:,} tokens bear loss "
            f"({report.bearing_tokens / report.tokens:.1%}); the longest conversation has {report.longest:,}"
        ),
        *map(Text, _remarks(report)),
    )


def _remarks(report: ChatReport) -> Iterator[str]:
    """What a person should look at in the files."""
    if report.shapes:
        yield "recognised: " + ", ".join(f"{name} in {counted(n, 'line')}" for name, n in report.shapes.items())
    if len(report.parts) > 1 or report.unread:
        unread = f"; not read: {', '.join(report.unread)}" if report.unread else ""
        yield f"parts: {', '.join(f'{name} {n:,}' for name, n in report.parts.items())}{unread}"
    for name, lines in report.which.items():
        yield f"{_BECAME.get(name, name)}: {_places(lines)}"
    for why, lines in report.broken.items():
        yield f"skipped: {_places(lines)}: {why}"
    if report.empty_turns:
        yield f"without loss: empty answers in {_places(report.empty_turns)}"
    for name, lines in report.unwritten.items():
        yield f"not in the corpus: {name} in {_places(lines)}; the chat template does not write {name}"


def _shortened(text: str, most: int | None) -> str:
    if most is None or len(text) <= most:
        return text
    half = most // 2
    return f"{text[:half]} ... {len(text) - 2 * half:,} characters ... {text[-half:]}"


def _count(lines: Mapping[str, Lines]) -> int:
    return sum(each.count for each in lines.values())


def _places(lines: Lines) -> str:
    more = ", ..." if lines.count > len(lines.first) else ""
    return f"{counted(lines.count, 'line')}: {', '.join(lines.first)}{more}"


def preview_text(preview: Preview, *, most: int | None = None) -> RenderableType:
    """Documents with the tokens that bear loss in green and between [[ and ]]; the others are dim.

    A rejected answer is red. Of a run of tokens with more than `most` characters, the middle is left out.
    """
    texts: list[RenderableType] = []
    for document in preview.documents:
        shown = Text()
        for run in document:
            words = _shortened("".join(run.tokens), most)
            style = WORSE if run.role == "rejected" else BEARS
            shown.append(f"[[{words}]]" if run.bears_loss else words, style=style if run.bears_loss else SILENT)
        bearing = sum(len(run.tokens) for run in document if run.bears_loss)
        total = sum(len(run.tokens) for run in document)
        answer = next((f"{run.role}: " for run in document if run.role in ("chosen", "rejected")), "")
        texts += [
            shown,
            Text(f"{answer}{bearing:,} of {total:,} tokens bear loss: those between [[ and ]]", style="italic"),
            Text(),
        ]
    return Group(*texts)
