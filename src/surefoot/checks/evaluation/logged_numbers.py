"""Logged numbers: the series of numbers that a script prints, logs, shows in a progress bar or sends to a tracker."""

from __future__ import annotations

import logging
import math
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from surefoot.checks.engine.observer import Observer
from surefoot.checks.engine.scene import Scene
from surefoot.checks.engine.types import Args
from surefoot.checks.evaluation.number_words import kind_and_phase, phase_in
from surefoot.checks.evaluation.printed_pairs import pairs_in
from surefoot.checks.facts.evaluation import EvaluationFacts
from surefoot.checks.facts.series import Series
from surefoot.checks.loop.origins import origin
from surefoot.checks.loop.torch_files import TorchFiles
from surefoot.events.callers import frames, nearest_line
from surefoot.source.owners import is_users
from surefoot.torch_inside.modes import aside

_TRACKERS = (
    ("torch.utils.tensorboard.writer", "SummaryWriter", "add_scalar", "one"),
    ("torch.utils.tensorboard.writer", "SummaryWriter", "add_scalars", "several"),
    ("tensorboardX.writer", "SummaryWriter", "add_scalar", "one"),
    ("wandb.sdk.wandb_run", "Run", "log", "several"),
    ("mlflow", "", "log_metric", "one"),
    ("mlflow", "", "log_metrics", "several"),
    ("lightning.pytorch.core.module", "LightningModule", "log", "one"),
    ("pytorch_lightning.core.module", "LightningModule", "log", "one"),
    ("transformers.trainer", "Trainer", "log", "several"),
    ("accelerate.accelerator", "Accelerator", "log", "several"),
    ("tqdm.std", "tqdm", "set_postfix", "several"),
    ("tqdm.std", "tqdm", "set_postfix_str", "text"),
    ("tqdm.std", "tqdm", "set_description", "text"),
    ("tqdm.std", "tqdm", "set_description_str", "text"),
)
"""Module, class, method, and what the method is given: a name and a number, several of them, or text."""
_WORTH_READING = re.compile(
    r"acc|loss|auc|auroc|f1|fscore|iou|jaccard|dice|pearson|spearman|corr|\bce\b|xent|entropy|ppl|perplexity|wer|cer|"
    r"error.rate|bce|coverage|ctc|mae|map|mrr|mse|ndcg|nll|precision|r2|recall|picp",
    re.IGNORECASE,
)
"""A line without any of these holds no number that a rule judges."""
_READ, _EVERY, _THEN = 1024, 1024, 64
"""All of the first lines are read, and of every so many lines after them so many in a row."""
_MOST_SERIES, _MOST_VALUES = 256, 512


@dataclass
class _Numbers:
    """A series as it grows. Of a long one every second number is kept, then every fourth, and so on."""

    series: Series
    seen: int = 0
    stride: int = 1
    values: list[tuple[int, float, int, bool]] = field(default_factory=list)

    def add(self, value: tuple[int, float, int, bool]) -> None:
        if self.seen % self.stride == 0:
            self.values.append(value)
        self.seen += 1
        if len(self.values) >= _MOST_VALUES:
            self.values, self.stride = self.values[::2], 2 * self.stride

    def whole(self) -> Series:
        """What several calls sent after the same update counts as one number, their mean: they may be batches."""
        values = self.values
        if not self.series.printed:
            after: dict[int, list[tuple[int, float, int, bool]]] = {}
            for each in values:
                after.setdefault(each[0], []).append(each)
            values = [
                (update, sum(each[1] for each in some) / len(some), some[0][2], all(each[3] for each in some))
                for update, some in after.items()
            ]
        self.series.updates, self.series.values, self.series.decimals, fresh = zip(*values, strict=True)
        self.series.untrained = sum(fresh)
        return self.series


class LoggedNumbers(Observer):
    """Reads lines as they are written, and calls of trackers as they are made. It passes everything on unchanged."""

    stays = True

    def __init__(self, scene: Scene, files: TorchFiles) -> None:
        super().__init__(scene)
        self._files = files
        self._numbers: dict[tuple[object, ...], _Numbers] = {}
        self._begun: dict[int, str] = {}
        """The beginning of the last line of each stream."""
        self._lines = self._modules = self._within = 0
        self._forwards = self._loaded = False
        self._followed = set[tuple[str, str, str, str]]()

    def __enter__(self) -> LoggedNumbers:
        for stream in {id(each): each for each in (sys.stdout, sys.stderr)}.values():
            if hasattr(stream, "__dict__") and hasattr(stream, "write"):
                self.follow(stream, "write", before=partial(self._written, id(stream)))
        self.follow(nn.Module, "load_state_dict", before=self._loads)
        self.follow(logging.Logger, "handle", before=self._logged, after=self._leave)
        return self

    # ------------------------------------------------------------------------------------------------ what is written

    def _written(self, stream: int, text: object = "", *_: object) -> None:
        if self._within or not isinstance(text, str):
            return
        text = self._begun.pop(stream, "") + text
        if "\n" in text or "\r" in text:
            *lines, text = re.split(r"[\r\n]", text)
            for line in lines:
                self._read(line)
        if text and len(text) < _READ:
            self._begun[stream] = text

    def _logged(self, _: object, record: logging.LogRecord) -> None:
        self._within += 1
        if self._within == 1:
            for line in record.getMessage().splitlines():
                self._read(line)

    def _leave(self, *_: object, **__: object) -> None:
        self._within -= 1

    def _read(self, line: str) -> None:
        if not line or not _WORTH_READING.search(line):
            return
        self._lines += 1
        if self._lines > _READ and self._lines % _EVERY >= _THEN:
            return
        where = ""
        for number, pair in enumerate(pairs_in(line)):
            kind, phase = kind_and_phase(pair.name)
            if kind:
                where = where or self._line()
                value = pair.value / 100 if pair.percent else pair.value
                decimals = pair.decimals + 2 * pair.percent
                key = (where, number, pair.name, phase or phase_in(pair.before))
                self._add(key, " ".join(pair.name), kind, key[-1], value, decimals, printed=True)

    # --------------------------------------------------------------------------------------------- what trackers get

    def model_called(self, model: nn.Module, args: Args) -> None:
        self._forwards = True
        self._look_for_trackers()

    def update_ends(self, optimizer: Optimizer) -> None:
        self._look_for_trackers()

    def _look_for_trackers(self) -> None:
        """Follows the trackers that were imported since. Nothing is worth reading before the first forward."""
        if len(sys.modules) == self._modules:
            return
        self._modules = len(sys.modules)
        for each in _TRACKERS:
            module, kind, method, given = each
            owner = sys.modules.get(module)
            owner = getattr(owner, kind, None) if kind else owner
            if each not in self._followed and callable(getattr(owner, method, None)):
                self._followed.add(each)
                bound = not kind
                self.follow(owner, method, before=partial(self._sent, given, bound), after=self._leave)

    def _sent(self, given: str, bound: bool, *args: Any, **kwargs: Any) -> None:
        """A tracker was called. What it prints of that, and calls for it, is not read again."""
        self._within += 1
        if self._within > 1:
            return
        named = list(args if bound else args[1:])
        if given == "text":
            self._read(str(named[0] if named else next(iter(kwargs.values()), "")))
        elif given == "one":
            first = [*named, *(kwargs[key] for key in _NAMES if key in kwargs)]
            if len(first) > 1:
                self._add_sent("", {first[0]: first[1]})
        else:
            tag = next((each for each in named if isinstance(each, str)), "")
            for each in (*named, *kwargs.values(), kwargs):
                if isinstance(each, Mapping):
                    self._add_sent(tag, each)

    def _add_sent(self, tag: str, numbers: Mapping[Any, object]) -> None:
        where = ""
        for name, given in numbers.items():
            words = tuple(each for each in (tag, name) if isinstance(each, str) and each)
            kind, phase = kind_and_phase(words)
            value = _plain(given) if kind else None
            if value is not None:
                where = where or self._line()
                self._add((where, words), "/".join(words), kind, phase, value, 16, printed=False)

    # --------------------------------------------------------------------------------------------------- the series

    def _line(self) -> str:
        """The line of the user's file: what logs for it may lie in Python's own library."""
        own = next((each for each in frames() if is_users(each.f_code.co_filename)), None)
        line = nearest_line() if own is None else (own.f_code.co_filename, own.f_lineno)
        return f"{line[0]}:{line[1]}" if line else ""

    def _add(
        self, key: tuple[object, ...], name: str, kind: str, phase: str, value: float, decimals: int, *, printed: bool
    ) -> None:
        scene = self.scene
        key = (scene.training, *key)
        if key not in self._numbers:
            if len(self._numbers) >= _MOST_SERIES:
                return
            where = str(key[1])
            self._numbers[key] = _Numbers(Series(name, kind, where, phase, printed, scene.training))
        self._numbers[key].add((scene.updates, value, decimals, self._is_untrained()))

    def _is_untrained(self) -> bool:
        """Has a model run, and has none been trained or loaded yet?"""
        scene = self.scene
        if scene.updates or scene.backwards or self._loaded or not self._forwards:
            return False
        return not self._files.loaded and not any(map(origin, scene.phases.models))

    def _loads(self, *_: object, **__: object) -> None:
        self._loaded = True

    def facts(self) -> Iterator[EvaluationFacts]:
        yield EvaluationFacts(series=tuple(each.whole() for each in self._numbers.values() if each.values))


_NAMES = ("tag", "name", "key", "scalar_value", "value")
"""The keywords of a name and a number, the name first."""


def _plain(value: object) -> float | None:
    """A number that can be read without waiting for a device."""
    if isinstance(value, torch.Tensor):
        if value.numel() != 1 or not value.is_cpu or type(value) is not torch.Tensor:
            return None
        with aside():
            return float(value.detach())
    if isinstance(value, bool):
        return None
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return math.nan if value == "nan" else None
