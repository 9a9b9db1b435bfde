"""Finds the tokenizer of a model, and the chat template that came with the model."""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from surefoot.checks.engine.living import living
from surefoot.finetuning.template_limits import TemplateLimit, limited_template

_ASKED, _ANSWERED = "What is asked?", "What is answered."
_TEMPLATE, _CONFIG = "chat_template.jinja", "tokenizer_config.json"


def tokenizer_of(origin: str) -> Any:
    """The living tokenizer that was read from this folder or repository; None if there is none."""
    module = sys.modules.get("transformers.tokenization_utils_base")
    if module is None or not origin:
        return None
    found = [each for each in living(module.PreTrainedTokenizerBase) if str(each.name_or_path) == origin]
    return found[0] if found else None


def template_of(origin: str) -> str:
    """The chat template in the model's folder, or in the cached files of its repository; empty if there is none."""
    for name in (_TEMPLATE, _CONFIG):
        file = _cached(origin, name)
        if file is not None:
            text = file.read_text(encoding="utf-8")
            template = text if name == _TEMPLATE else json.loads(text).get("chat_template")
            if isinstance(template, str) and template:
                return template
    return ""


def _cached(origin: str, name: str) -> Path | None:
    from transformers.utils.hub import cached_file

    try:
        found = cached_file(origin, name, local_files_only=True)
    except OSError:
        return None
    return None if found is None else Path(found)


def mark_before_answer(tokenizer: Any, template: str) -> str:
    """What a chat template writes between a question and its answer; empty if it takes too long or too much memory."""
    asked = [{"role": "user", "content": _ASKED}, {"role": "assistant", "content": _ANSWERED}]
    text = ""
    with suppress(TemplateLimit), limited_template("the chat template"):
        text = str(tokenizer.apply_chat_template(asked, chat_template=template, tokenize=False))
    mark, answer, _ = text.partition(_ASKED)[2].partition(_ANSWERED)
    return mark.strip() if answer else ""


def decoded(tokenizer: Any, tokens: list[int]) -> str:
    return str(tokenizer.decode(tokens, skip_special_tokens=False, clean_up_tokenization_spaces=False))
