"""Finds what the source of a script makes and never uses: loaders, masks, kept weights, functions that evaluate."""

from __future__ import annotations

from collections.abc import Iterator

from surefoot.checks.engine.observer import Observer
from surefoot.checks.facts.evaluation import EvaluationFacts, NeverUsed
from surefoot.source.never_used import never_used


class MadeForNothing(Observer):
    """Reads the script once, after a loop that ran. Files that it imports may serve other scripts."""

    def probed(self) -> Iterator[EvaluationFacts]:
        if self.scene.updates:
            found = never_used(self.scene.source)
            yield EvaluationFacts(
                never_used=tuple(
                    NeverUsed(each.kind, each.name, f"{each.file}:{each.line}", each.overwritten) for each in found
                )
            )
