"""Recognises a generator and its discriminator, and tests that they pull in opposite directions."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from surefoot.checks.engine.observer import Observer
from surefoot.checks.engine.scene import Scene, held, tensors
from surefoot.checks.engine.types import Args, Function, Kwargs
from surefoot.checks.engine.weak_notes import WeakNotes
from surefoot.checks.losses.known_terms import KnownTerms
from surefoot.torch_inside.modes import aside

_FEWEST = 3
_MOST_UPDATES = 40
_KEEPS = {"detach", "view", "reshape", "flatten", "float", "to", "clone", "contiguous", "__getitem__", "squeeze"}


@dataclass
class _Pull:
    """How one backward pulled what a judge says about a batch."""

    judge: int
    maker: int
    """The model that made the batch; 0 if it is data."""
    sign: int


@dataclass
class _Match:
    """The directions in which a judge's opinion of made samples and of data is pulled, by whose update it is."""

    name: str
    judged: list[tuple[int, int]] = field(default_factory=list)
    """In updates of the judge: for made samples, and for data."""
    made: list[int] = field(default_factory=list)
    """In updates of the maker."""


class Opponents(Observer):
    """Follows the outputs of one model into another that has an optimizer of its own."""

    waits = True

    def __init__(self, scene: Scene, known: KnownTerms) -> None:
        super().__init__(scene)
        self._known = known
        self._made: WeakNotes[nn.Module] = WeakNotes()
        """What models returned, and views of it, with the model."""
        self._pulls: list[_Pull] = []
        self._models: dict[int, nn.Module] = {}
        self._matches: dict[tuple[int, int], _Match] = {}

    def model_returned(self, model: nn.Module, args: Any, kwargs: Kwargs, output: object) -> None:
        if not self.scene.close or self.scene.updates > _MOST_UPDATES:
            return
        given = [each for each in tensors((args, kwargs)) if each.dim()]
        makers = [maker for each in given if (maker := self._made.get(each)) is not None and maker is not model]
        watched = makers or not any(each.requires_grad for each in given)  # not the points of a gradient penalty
        for each in tensors(output):
            self._made[each] = model
            if watched and each.requires_grad and each.dim() and each.numel() == len(each) >= _FEWEST:
                self._hook(each, model, makers[0] if makers else None)

    def called(self, function: Function, args: Args, kwargs: Kwargs, out: object) -> None:
        """Follows what models returned through views."""
        if len(self._made) and args and getattr(function, "__name__", "") in _KEEPS and isinstance(out, torch.Tensor):
            maker = self._made.get(args[0])
            if maker is not None:
                self._made[out] = maker

    def _hook(self, output: torch.Tensor, judge: nn.Module, maker: nn.Module | None) -> None:
        self._models |= {id(each): each for each in (judge, maker) if each is not None}
        pulled = self.scene.failsafe.callback(self._pulled)
        output.register_hook(functools.partial(pulled, id(judge), id(maker) if maker is not None else 0))

    def _pulled(self, judge: int, maker: int, gradient: torch.Tensor) -> None:
        with aside():
            counted = gradient[gradient != 0]
            alike = bool(counted.numel()) and bool((counted > 0).all() | (counted < 0).all())
            sign = (1 if float(counted[0]) > 0 else -1) if alike else 0
        self._pulls.append(_Pull(judge, maker, sign))

    def update_ends(self, optimizer: Optimizer) -> None:
        pulls, self._pulls = self._pulls, []
        if not self.scene.close:
            self._made = WeakNotes()
        if not pulls:
            return
        params = set(held(optimizer))
        for judge in {each.judge for each in pulls}:
            of_judge = [each for each in pulls if each.judge == judge]
            owns = not params.isdisjoint(self._models[judge].parameters())
            for maker in {each.maker for each in of_judge} - {0}:
                makes = not params.isdisjoint(self._models[maker].parameters())
                match = self._matches.setdefault((judge, maker), _Match(self.scene.name(self._models[maker])))
                made = {each.sign for each in of_judge if each.maker == maker}
                data = {each.sign for each in of_judge if each.maker == 0}
                if owns and not makes and len(made) == len(data) == 1:
                    match.judged.append((made.pop(), data.pop()))
                elif makes and not owns and len(made) == 1 and not data:
                    match.made.append(made.pop())

    def settle(self) -> None:
        """Compares the directions of both once all updates are known."""
        for match in self._matches.values():
            judged, made = match.judged, match.made
            if len(judged) < _FEWEST or len(made) < _FEWEST or len(set(judged)) > 1 or len(set(made)) > 1:
                continue
            of_made, of_data = judged[0]
            if not of_made or not of_data or not made[0]:
                continue
            if of_made == of_data:
                fault = "the discriminator is told the same of what is made and of data"
            elif of_made == made[0]:
                fault = "the generator is told the same of what it makes as the discriminator: they do not oppose"
            else:
                fault = ""
            for _ in range(_FEWEST):
                self._known.saw("opponents", match.name, fault)
        self._matches = {}
