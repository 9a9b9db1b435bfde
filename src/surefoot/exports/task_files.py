"""Reads the task files of lm-evaluation-harness as data, and refuses whatever could lead the harness to code.

The harness runs Python for `!function`, for a data set or a metric that is a script, and for some options of
generation. Here a task is what these lists allow: plain YAML without tags, known fields, and known names in them.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

from surefoot.errors import RunError
from surefoot.exports.formats import need
from surefoot.records.codec import read_plain_file
from surefoot.units import bytes_text

FIELDS = frozenset((
    "task", "task_alias", "tag", "group", "group_alias", "aggregate_metric_list", "include", "dataset_path",
    "dataset_name", "dataset_kwargs", "training_split", "validation_split", "test_split", "fewshot_split",
    "doc_to_text", "doc_to_target", "doc_to_choice", "description", "target_delimiter", "fewshot_delimiter",
    "fewshot_config", "num_fewshot", "metric_list", "output_type", "generation_kwargs", "repeats", "filter_list",
    "should_decontaminate", "doc_to_decontamination_query", "gen_prefix", "metadata",
))  # fmt: skip
"""The fields of a task or a group that hold data. Others take functions, or name files that the harness would open."""
DATASETS = frozenset(("json", "csv", "text", "parquet"))
"""Readers of the library datasets. It also has ones that unpickle, and takes a path for a script."""
READING = frozenset(("data_files", "field", "sep", "delimiter", "column_names", "encoding", "sample_by"))
"""The options of those readers."""
GENERATION = frozenset((
    "until", "max_gen_toks", "max_new_tokens", "min_new_tokens", "do_sample", "temperature", "top_p", "top_k",
    "min_p", "typical_p", "num_beams", "repetition_penalty", "length_penalty", "no_repeat_ngram_size",
    "early_stopping", "seed",
))  # fmt: skip
"""The options of `generate` that are numbers and texts. `custom_generate` runs a script."""
METRICS = frozenset((
    "acc", "acc_norm", "acc_mutual_info", "acc_all", "exact_match", "perplexity", "word_perplexity",
    "byte_perplexity", "bits_per_byte", "brier_score", "mcc", "f1", "bleu", "chrf", "ter", "bypass",
))  # fmt: skip
"""The harness's own metrics. It looks for a script of any other name."""
MOST_BYTES, MOST_DEPTH = 2**22, 50
"""The size and the nesting of a task file."""
_TASK = ("task", "group", "class", "include", "task_list")
"""The harness passes over a file of a folder that has none of these fields."""


def refuse_code(tasks: Path) -> None:
    """Refuses a task, or a folder of them, that is not data only. Nothing of the harness is loaded."""
    place = tasks.resolve()
    reader = _Tasks(place if place.is_dir() else place.parent)
    for file in sorted(place.glob("**/*.yaml")) if place.is_dir() else [place]:
        reader.read(file, listed=place.is_dir())


class _Tasks:
    """The files of one folder. Each is read once, however often it is included."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._read = set[Path]()
        self._seen = dict[int, Any]()

    def read(self, file: Path, *, listed: bool = False) -> None:
        """Refuses one file and those that it includes. `listed`: it may be something else than a task."""
        resolved = Path(os.path.realpath(file))  # `resolve` raises for a link to itself
        if not resolved.is_relative_to(self._root):
            _refuse(file, f"leads to {resolved}, outside of {self._root}")
        if resolved in self._read:
            return
        for task in _parsed(resolved):
            if isinstance(task, dict) and (not listed or any(field in task for field in _TASK)):
                self._read.add(resolved)
                self._examine(resolved, task)

    def _examine(self, file: Path, task: Mapping[Any, Any]) -> None:
        if id(task) in self._seen:  # an alias of YAML
            return
        self._seen[id(task)] = task
        _only(file, "the field", task, FIELDS)
        _only(file, "dataset_path", _listed(task.get("dataset_path")), DATASETS)
        _only(file, "the field of dataset_kwargs", _fields(file, task, "dataset_kwargs"), READING)
        _only(file, "the field of generation_kwargs", _fields(file, task, "generation_kwargs"), GENERATION)
        _refuse_remote(file, (task.get("dataset_kwargs") or {}).get("data_files"))
        for metric in _listed(task.get("metric_list")):
            if not isinstance(metric, dict) or metric.get("hf_evaluate"):
                _refuse(file, "has a metric_list that is no list of the harness's own metrics")
            _only(file, "the metric", _listed(metric.get("metric")), METRICS)
        for name in _listed(task.get("include")):
            self._include(file, name)
        for child in _listed(task.get("task")):
            if isinstance(child, dict):
                self._examine(file, child)

    def _include(self, file: Path, name: Any) -> None:
        """Versions of the harness before 0.4.10 look in the working folder first."""
        if not isinstance(name, str) or not os.path.isfile(file.parent / name):  # `is_file` raises for a long name
            _refuse(file, f"includes {_shown(name)}, which is no file beside it")
        for place in {file.parent / name, Path(name).absolute()}:
            if os.path.isfile(place):
                self.read(place)


def _parsed(file: Path) -> Iterator[Any]:
    """What a file holds, as both parsers of PyYAML read it: versions of the harness differ in which they use."""
    yaml = need("yaml", "tasks", "--tasks", package="pyyaml")
    content = read_plain_file(file)
    if len(content) > MOST_BYTES:
        _refuse(file, f"has {bytes_text(len(content))}, more than the {bytes_text(MOST_BYTES)} that are read")
    for loader in (yaml.SafeLoader, getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
        try:
            _refuse_tags(file, yaml.parse(content, Loader=loader))
            yield yaml.load(content, Loader=loader)
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            where = getattr(error, "problem_mark", None)
            line = "" if where is None else f", line {where.line + 1}"
            raise RunError(f"{file}{line} is not YAML: {getattr(error, 'problem', None) or error}") from error


def _refuse_tags(file: Path, events: Iterator[Any]) -> None:
    depth = 0
    for event in events:
        place, tag = f"{file}, line {event.start_mark.line + 1}", getattr(event, "tag", None)
        kind = type(event).__name__
        depth += kind.endswith("StartEvent") - kind.endswith("EndEvent")
        if tag is not None:
            _refuse(place, f"has the tag {tag}, by which a file can run Python code")
        if depth > MOST_DEPTH:
            _refuse(place, f"has values in values, more than {MOST_DEPTH} deep")


def _refuse_remote(file: Path, files: Any) -> None:
    for each in files.values() if isinstance(files, dict) else _listed(files):
        for name in _listed(each):
            if not isinstance(name, str) or "://" in name or "::" in name:
                _refuse(file, f"has {_shown(name)} in data_files, which must be paths of local files")


def _only(file: Path, what: str, names: Collection[Any], known: Collection[str]) -> None:
    """Refuses other names than the known ones. What is no text is none of them, and may not be hashable."""
    for name in names:
        if not isinstance(name, str) or name not in known:
            _refuse(file, f"has {what} {_shown(name)}; known as data: {', '.join(sorted(known))}")


def _fields(file: Path, task: Mapping[Any, Any], name: str) -> Mapping[Any, Any]:
    found = task.get(name) or {}
    if not isinstance(found, dict):
        _refuse(file, f"has {name} without fields")
    return found


def _listed(value: Any) -> list[Any]:
    if value is None:
        return []
    return value if isinstance(value, list) else [value]


def _shown(value: Any) -> str:
    """A text, or only the type of another value: aliases make a few lines of YAML a value of any size."""
    return f"{value!r:.80}" if isinstance(value, str) else f"a {type(value).__name__}"


def _refuse(place: Path | str, why: str) -> NoReturn:
    raise RunError(f"{place} {why}; if you trust its maker, add --trust-run and the harness may run code")
