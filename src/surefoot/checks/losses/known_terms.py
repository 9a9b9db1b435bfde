"""Known terms: what was recognised in a loss, and whether the law of each term held."""

from __future__ import annotations

from collections.abc import Iterator

from surefoot.checks.engine.observer import Observer
from surefoot.checks.engine.scene import Scene
from surefoot.checks.facts.losses import Known, LossFacts


class KnownTerms(Observer):
    """Keeps one record for each kind of term and line."""

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._seen: dict[tuple[str, str], Known] = {}

    def saw(self, kind: str, where: str, fault: str = "") -> None:
        """Records a term. An empty fault means that its law held."""
        known = self._seen.setdefault((kind, where), Known(kind, where))
        known.broken += bool(fault)
        known.held += not fault
        known.fault = known.fault or fault

    def facts(self) -> Iterator[LossFacts]:
        yield LossFacts(known=tuple(self._seen.values()))
