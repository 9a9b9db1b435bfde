"""The data that training and validation were given, as a table of at most 80 columns and as a part of a page."""

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from surefoot.records.splits import BOTH, TARGET, TRAINING, VALIDATION, Column, SplitProfile
from surefoot.reports.html import html_table
from surefoot.reports.markup import Markup, joined, markup
from surefoot.units import bytes_text, count_text

PARTS = (TRAINING, VALIDATION, BOTH)
_MOST_COLUMNS = 8
_LONGEST_NAME = 24
Line = tuple[str, ...]


def splits_text(profile: SplitProfile) -> RenderableType:
    """One line for each statistic, one column for each part; then what occurs in both."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("data", no_wrap=True, max_width=36)
    for part in PARTS:
        table.add_column(part, justify="right", no_wrap=True, max_width=13)
    for line in lines(profile):
        table.add_row(*line)
    return Group(Text(), table, *map(Text, sentences(profile)))


def splits_section(profile: SplitProfile | None) -> Markup:
    """The same on a page."""
    if profile is None:
        return Markup()
    said = joined(markup('<p class="note">{}</p>', each) for each in sentences(profile))
    return joined((html_table(["", *PARTS], list(lines(profile))), said))


def lines(profile: SplitProfile) -> Iterator[Line]:
    """What each line says, and its number in each part."""
    rows = {each.part: each for each in profile.rows}
    yield _line("rows seen", {part: count_text(each.seen) for part, each in rows.items()})
    yield _line("different rows kept", {part: count_text(each.kept) for part, each in rows.items()})
    names = list(dict.fromkeys(each.name for each in profile.columns))
    shown = [*[name for name in names if name != TARGET][:_MOST_COLUMNS], *(TARGET for name in names if name == TARGET)]
    for name in shown:
        yield from _column(name, {each.part: each for each in profile.columns if each.name == name})
    for fit in profile.fits:
        other = VALIDATION if fit.fitted_on == TRAINING else TRAINING
        scores = {fit.fitted_on: f"{fit.within:.2f}", other: f"{fit.across:.2f}"}
        yield _line(f"{profile.score}, linear fit on {fit.fitted_on}", scores)


def sentences(profile: SplitProfile) -> Iterator[str]:
    """What no table of numbers says."""
    rows = {each.part: each for each in profile.rows}
    for part in (TRAINING, VALIDATION):
        if part not in rows:
            yield f"No row of {part} was seen: the model did not run {_HOW[part]} gradients."
    if len(rows) == 2:
        others = profile.shared_with_other_target
        apart = f", {count_text(others)} of them with another target" if others else ""
        kept = rows[VALIDATION].kept
        yield f"In both parts: {count_text(profile.shared)} of {count_text(kept)} different validation rows{apart}."
    if not any(each.name == TARGET for each in profile.columns):
        yield "No targets were recognised."
    if profile.fits:
        yield f"Always answering the same has {profile.score} {profile.guess:.2f}."
    if profile.disagrees:
        yield "A linear model of one part does not hold in the other: does the target mean the same in both?"
    size = bytes_text(sum(each.kept_bytes for each in profile.rows))
    yield f"Statistics are of the rows kept, {size}."


_HOW = {TRAINING: "with", VALIDATION: "without"}


def _column(name: str, columns: dict[str, Column]) -> Iterator[Line]:
    short = name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…"
    if any(each.labels for each in columns.values()):
        labels = sorted({label for each in columns.values() for label in each.labels}, key=float)
        for label in labels:
            shares = {part: f"{each.labels.get(label, 0.0):.1%}" for part, each in columns.items()}
            yield _line(f"{short} = {label}", shares)
        return
    yield _line(f"{short} mean", {part: f"{each.mean:.4g}" for part, each in columns.items()})
    yield _line(f"{short} deviation", {part: f"{each.deviation:.4g}" for part, each in columns.items()})
    yield _line(f"{short} lowest", {part: f"{each.lowest:.4g}" for part, each in columns.items()})
    yield _line(f"{short} highest", {part: f"{each.highest:.4g}" for part, each in columns.items()})
    usual = {part: f"{each.usual:.3g} ({each.usual_share:.0%})" for part, each in columns.items()}
    if max(each.usual_share for each in columns.values()) >= 0.01:
        yield _line(f"{short} most often", usual)


def _line(label: str, numbers: dict[str, str]) -> Line:
    return (label, *(numbers.get(part, "-") for part in PARTS))
