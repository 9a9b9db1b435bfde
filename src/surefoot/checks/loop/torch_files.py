"""Publishes what `torch.save` writes and `torch.load` reads: each is wrapped once, here."""

from __future__ import annotations

from typing import Any

import torch

from surefoot.checks.engine.file_contents import Contents
from surefoot.checks.engine.observer import Observer
from surefoot.checks.engine.scene import Scene


class TorchFiles(Observer):
    """Tells all observers about a file before it is written and after it is read."""

    stays = True

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self.saved = self.loaded = 0

    def __enter__(self) -> TorchFiles:
        self.follow(torch, "save", before=self._saves)
        self.follow(torch, "load", after=self._loads)
        return self

    def _saves(self, obj: Any, f: Any = None, *_: object, **__: object) -> None:
        self.saved += 1
        self.scene.bus.tell("saving", Contents(obj), f)

    def _loads(self, loaded: object, *_: object, **__: object) -> None:
        self.loaded += 1
        self.scene.bus.tell("file_loaded", Contents(loaded))
