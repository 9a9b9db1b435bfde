"""Corpora and token ledgers as text for a terminal."""

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from surefoot.records.manifest import Manifest
from surefoot.records.token_ledger import TokenLedger
from surefoot.units import bytes_text, count_text, counted, short_count


def manifest_text(manifest: Manifest) -> RenderableType:
    """What a corpus holds, by part and source."""
    tally = manifest.tally()
    table = _table("part", "source", "documents", "tokens", "text", "bytes/token")
    for part in tally.under("tokens"):
        for source, tokens in tally.under(f"tokens/{part}").items():
            documents, text = (int(tally.total(f"{unit}/{part}/{source}")) for unit in ("documents", "bytes"))
            per_token = f"{text / tokens:.2f}" if text else "-"
            table.add_row(part, source, count_text(documents), count_text(tokens), bytes_text(text), per_token)
    hashed = "every page hashed" if manifest.hashed else "not hashed: damage would go unseen"
    vocabulary = f"vocabulary {manifest.vocabulary:,}" if manifest.vocabulary else "vocabulary unknown"
    return Group(
        table,
        Text(
            f"{count_text(manifest.tokens)} tokens as {manifest.dtype} in {counted(len(manifest.shards), 'shard')}; "
            f"{vocabulary}; {hashed}"
        ),
    )


def token_ledger_text(ledger: TokenLedger, parameters: int | None = None) -> RenderableType:
    """How a run uses every token."""
    table = _table("source", "held", "valid", "repeated", "masked", "cropped", "left", "epochs")
    for each in ledger.sources:
        amounts = (each.held, each.valid, each.repeated, each.masked, each.cropped, each.left)
        table.add_row(each.source, *map(count_text, amounts), f"{each.epochs:.2f}")
    share = ledger.padding / ledger.positions if ledger.positions else 0.0
    line = f"{count_text(ledger.trained)} trained tokens, {count_text(ledger.padding)} of padding ({share:.1%}), "
    line += f"{count_text(ledger.left)} left"
    if parameters is not None:
        line += f"; {short_count(ledger.tokens_per_parameter(parameters))} tokens per parameter"
    return Group(table, Text(line))


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number < 2 and column in ("part", "source") else "right")
    return table
