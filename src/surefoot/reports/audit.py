"""An audit as text: whether repeated steps gave the same state, bit for bit."""

from rich.console import RenderableType
from rich.text import Text

from surefoot.records.audit import Audit


def audit_text(audit: Audit) -> RenderableType:
    """One line if the states are the same; else the parts of the checkpoint that differ."""
    steps = f"steps {audit.from_step + 1} to {audit.to_step} of {audit.run}, repeated"
    if not audit.differing:
        return Text(f"{steps}: the same state, bit for bit")
    shown = ", ".join(audit.differing[:5])
    return Text(
        f"{steps}: {len(audit.differing)} parts of the checkpoint differ: {shown}\n"
        "A bit flipped in memory, or the code is not deterministic; go back to an earlier checkpoint.",
        style="red",
    )
