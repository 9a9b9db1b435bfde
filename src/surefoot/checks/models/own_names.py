"""Finds what user code calls its models, so that two of one class can be told apart."""

from __future__ import annotations

import re
import weakref
from dataclasses import replace

from torch import nn

from surefoot.checks.engine.observer import Observer
from surefoot.checks.engine.scene import Scene
from surefoot.checks.engine.types import Args
from surefoot.checks.models.networks_in_sight import in_sight
from surefoot.records.finding import Finding, Findings


class OwnNames(Observer):
    """Looks at the variables of user code when a second model of a class first runs."""

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._known: weakref.WeakKeyDictionary[nn.Module, str] = weakref.WeakKeyDictionary()
        self._seen: weakref.WeakSet[nn.Module] = weakref.WeakSet()

    def model_called(self, model: nn.Module, args: Args) -> None:
        if model in self._seen:
            return
        self._seen.add(model)
        alike = [each for each in self.scene.phases.models if type(each) is type(model)]
        if len(alike) > 1:
            held = [each for each in in_sight() if isinstance(each.value, nn.Module) and each.value in alike]
            for each in reversed(held):  # the innermost name counts
                self._known[each.value] = each.name

    def of_models(self) -> tuple[str, ...]:
        """What each model that ran is called: by its class, and by its variable if that does not tell which it is."""
        return tuple(self._of(each) or type(each).__name__ for each in self.scene.phases.models)

    def _of(self, model: nn.Module) -> str:
        own = self._known.get(model)
        return f"{own} ({type(model).__name__})" if own else ""

    def apart(self, found: Findings) -> Findings:
        """The findings, in which models of one class have their own names."""
        names = {self.scene.name(each): self._of(each) for each in self.scene.phases.models if self._of(each)}
        if not names:
            return found
        either = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
        pattern = re.compile(rf"(?<![\w.(/])(?:{either})(?![\w.]| \d)")

        def told(text: str) -> str:
            return pattern.sub(lambda match: names[match[0]], text)

        def of(finding: Finding) -> Finding:
            seen, why, remedy = told(finding.seen), told(finding.why), told(finding.remedy)
            return replace(finding, seen=seen, where=told(finding.where), why=why, remedy=remedy)

        return replace(
            found, findings=tuple(map(of, found.findings)), skipped=tuple(told(each) for each in found.skipped)
        )
