"""Tasks of lm-evaluation-harness, from local files, for models of transformers. Nothing is downloaded.

A task is data unless the user trusts it: it may name no code, and its templates run in jinja's sandbox.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from surefoot.errors import RunError, first_line
from surefoot.exports.formats import need
from surefoot.exports.task_files import refuse_code
from surefoot.finetuning.quiet import quiet
from surefoot.finetuning.template_limits import TemplateLimit, limited_template
from surefoot.records.evaluation import Score

EXTRA = "tasks"


def check_tasks(tasks: str, *, trusted: bool = False) -> None:
    """Refuses a path that holds no task, one that leads to code, and a harness that is not installed."""
    place = Path(tasks)
    if not place.exists():
        raise RunError(f"there is no file or folder {tasks}; name a task in YAML, or a folder of them")
    if place.is_dir() and not any(place.rglob("*.yaml")):
        raise RunError(f"{tasks} holds no .yaml file; name a task in YAML, or a folder of them")
    if place.is_file() and place.suffix != ".yaml":
        raise RunError(f"{tasks} is no .yaml file; name a task in YAML, or a folder of them")
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise RunError("tasks are scored by one process; start the command without torchrun")
    if not trusted:
        refuse_code(place)
    _harness()


def task_scores(tasks: str, model: Any, tokenizer: Any, *, batch_size: int, trusted: bool = False) -> tuple[Score, ...]:
    """The harness's own figures of each task."""
    library = _harness()
    try:
        with _offline(), nullcontext() if trusted else _sandboxed(), quiet():
            models, files = _part("lm_eval.models.huggingface"), _part("lm_eval.tasks")
            _end_at_lines(tokenizer)
            place = Path(tasks)
            manager = files.TaskManager(include_path=str(place) if place.is_dir() else None, include_defaults=False)
            found = library.simple_evaluate(
                model=models.HFLM(pretrained=model, tokenizer=tokenizer, batch_size=batch_size),
                tasks=list(manager.all_subtasks) if place.is_dir() else [str(place.resolve())],
                task_manager=manager,
                bootstrap_iters=0,
                log_samples=False,
            )
    except TemplateLimit as error:
        raise RunError(f"lm_eval cannot run {tasks}: {error}") from error
    except Exception as error:  # a wrong field can make the harness raise anything
        raise RunError(
            f"lm_eval cannot run {tasks}: {first_line(error)}; surefoot downloads nothing, so a task "
            "must name local files: `dataset_path: json` and `data_files`"
        ) from error
    return tuple(
        Score(name, found["n-samples"][name]["effective"], None, None, None, _figures(row))
        for name, row in found["results"].items()
        if name in found["n-samples"]
    )


def _harness() -> Any:
    with quiet():
        return _part("lm_eval")


def _part(name: str) -> Any:
    return need(name, EXTRA, "--tasks")


def _end_at_lines(tokenizer: Any) -> None:
    """The harness needs a token that ends a text, and pads with it. If there is none, it is the line break."""
    if tokenizer.eos_token_id is None and (found := tokenizer("\n")["input_ids"]):
        tokenizer.eos_token = tokenizer.convert_ids_to_tokens(found)[-1]


def _figures(row: Mapping[str, Any]) -> dict[str, float]:
    """`acc,none` is the figure `acc`; another filter than none is named. What is no number is left out."""
    found = {}
    for key, value in row.items():
        name, _, kind = key.partition(",")
        if kind and isinstance(value, int | float) and not name.endswith("_stderr"):
            found[name if kind == "none" else f"{name} ({kind})"] = float(value)
    return found


@contextmanager
def _offline() -> Iterator[None]:
    """No downloads, and tables of local files are not kept: they would be taken again after the files change."""
    datasets, hub = _part("datasets"), _part("huggingface_hub.constants")
    before = hub.HF_HUB_OFFLINE, datasets.config.HF_HUB_OFFLINE, datasets.config.HF_DATASETS_CACHE
    with tempfile.TemporaryDirectory() as folder:
        hub.HF_HUB_OFFLINE = datasets.config.HF_HUB_OFFLINE = True
        datasets.config.HF_DATASETS_CACHE = Path(folder)
        try:
            yield
        finally:
            hub.HF_HUB_OFFLINE, datasets.config.HF_HUB_OFFLINE, datasets.config.HF_DATASETS_CACHE = before


@contextmanager
def _sandboxed() -> Iterator[None]:
    """The harness renders `doc_to_text` and others in a plain environment, from which a template can reach Python."""
    part, jinja, sandbox = _part("lm_eval.utils"), _part("jinja2"), _part("jinja2.sandbox")
    before = part.env, part.apply_template
    part.env = sandbox.ImmutableSandboxedEnvironment(undefined=jinja.StrictUndefined, keep_trailing_newline=True)
    part.env.filters.update(before[0].filters)

    def apply_template(template: str, doc: dict[str, Any]) -> Any:
        with limited_template(f"the template {template!r:.80}"):
            return before[1](template, doc)

    part.apply_template = apply_template
    try:
        yield
    finally:
        part.env, part.apply_template = before
