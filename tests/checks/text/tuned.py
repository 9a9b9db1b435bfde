"""Programs that tests of fine-tuning share: texts with a prompt and an answer, and a model that came from a folder."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F

import surefoot
from tests.checks.programs import whole
from tests.checks.text.programs import END, PAD, START
from tests.checks.texts import Tokens

MARK = [3, 4, 5]
"""What stands between a prompt and an answer."""
CONFIG = {"_name_or_path": "somewhere", "bos_token_id": START, "eos_token_id": END, "pad_token_id": PAD}
Texts = list[tuple[list[int], int]]
"""Tokens, and how many of them are the prompt."""


def texts(count=24, *, start=(START,), mark=MARK, end=(END,)) -> Texts:
    found = []
    for number in range(count):
        asked, answer = (
            (6 + whole(26, low + number % 4, seed=2 * number + part)).tolist() for part, low in enumerate((3, 4))
        )
        prompt = [*start, *asked, *mark]
        found.append((prompt + answer + list(end), len(prompt)))
    return found


def batches(rows: Texts, size=4):
    """Tokens, mask and labels, padded to the longest text. Prompts bear no loss."""
    for first in range(0, len(rows), size):
        some = rows[first : first + size]
        shape = len(some), max(len(tokens) for tokens, _ in some)
        tokens, labels = torch.full(shape, PAD), torch.full(shape, -100)
        mask = torch.zeros(shape, dtype=torch.long)
        for row, (each, prompt) in enumerate(some):
            tokens[row, : len(each)], mask[row, : len(each)] = torch.tensor(each), 1
            labels[row, prompt : len(each)] = torch.tensor(each[prompt:])
        yield tokens, mask, labels


def tuned(rows: Texts, *, relabel=lambda tokens, mask, labels: labels, lr=1e-4, optimizer=torch.optim.AdamW, **config):
    """The findings of a loop that fine-tunes a model on texts."""
    model = Tokens(vocabulary=32)
    model.config = SimpleNamespace(**{**CONFIG, **config})
    made = optimizer(model.parameters(), lr=lr)
    with surefoot.watch(model, made) as seen:
        for tokens, mask, labels in batches(rows):
            wanted = relabel(tokens, mask, labels)[:, 1:]
            loss = F.cross_entropy(model(tokens, attention_mask=mask)[:, :-1].flatten(0, 1), wanted.flatten())
            made.zero_grad()
            loss.backward()
            made.step()
    return seen.findings


TEMPLATE = "{% for m in messages %}{% if m['role'] == 'assistant' %}w3 w4 w5 {% endif %}{{ m['content'] }}{% endfor %}"


def talked(folder: str, *, mark=MARK, template=TEMPLATE, size=32):
    pytest.importorskip("transformers")  # which needs tokenizers
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    plain = Tokenizer(models.WordLevel({f"w{n}": n for n in range(size)}, unk_token="w0"))
    plain.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=plain, eos_token="w2", bos_token="w1", name_or_path=folder)
    if template:
        (Path(folder) / "chat_template.jinja").write_text(template, encoding="utf-8")
    findings = tuned(texts(mark=mark), _name_or_path=tokenizer.name_or_path)
    return findings
