"""Preferences: both answers and no other token bear loss, and what is dropped is counted."""

from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from surefoot.cli.main import app
from surefoot.data.formats import open_corpus
from surefoot.data.pairs import Pairs, padded
from surefoot.errors import DataError
from surefoot.finetuning.chat_corpus import marks_of, preview, write_chat_corpus
from surefoot.finetuning.local_tokenizer import read_tokenizer
from surefoot.finetuning.preference import preference
from tests import preferences, tuned_models

ASKED = [
    {"role": "user", "content": "two and two?"},
    {"role": "assistant", "content": "four"},
    {"role": "user", "content": "and one?"},
]
FIVE, SIX = [{"role": "assistant", "content": "five"}], [{"role": "assistant", "content": "six"}]


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    return tuned_models.tokenizer(tmp_path_factory.mktemp("preference") / "model")


def bearing(made, tokenizer) -> str:
    return tokenizer.decode([token for token, mark in zip(made.tokens, made.marks, strict=True) if mark & 1])


@pytest.mark.parametrize("template", [tuned_models.TEMPLATE, tuned_models.WITH_GENERATION])
@pytest.mark.parametrize(
    "line",
    [
        {"prompt": ASKED, "chosen": FIVE, "rejected": SIX},
        {"prompt": ASKED, "chosen": FIVE[0], "rejected": SIX[0]},
        {"chosen": ASKED + FIVE, "rejected": ASKED + SIX},
    ],
)
def test_only_the_answers_bear_loss_whatever_the_assistant_said_before(template, line, tmp_path):
    tokenizer = read_tokenizer(str(tuned_models.tokenizer(tmp_path / "model", template)))
    chosen, rejected = preference(line, tokenizer)
    assert bearing(chosen, tokenizer) == "five<|end|>\n"
    assert bearing(rejected, tokenizer) == "six<|end|>\n"
    for made, answer in ((chosen, FIVE), (rejected, SIX)):
        assert made.tokens == tokenizer(tokenizer.apply_chat_template(ASKED + answer, tokenize=False))["input_ids"]


def test_texts_bear_loss_from_the_answer_to_its_end(model):
    tokenizer = read_tokenizer(str(model))
    chosen, rejected = preference({"prompt": "2 and 2? ", "chosen": "4", "rejected": "five"}, tokenizer)
    assert (bearing(chosen, tokenizer), bearing(rejected, tokenizer)) == ("4<|end|>", "five<|end|>")
    assert tokenizer.decode(chosen.tokens) == "2 and 2? 4<|end|>"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ({"prompt": "x", "chosen": "y"}, "this one has no rejected"),
        ({"prompt": "x", "chosen": FIVE, "rejected": SIX}, "must all be texts, or all lists of messages"),
        ({"chosen": FIVE, "rejected": SIX}, "must begin with the same messages and then differ"),
        ({"chosen": ASKED, "rejected": ASKED}, "must begin with the same messages and then differ"),
    ],
)
def test_a_line_that_is_no_preference_is_refused(line, said, model):
    with pytest.raises(DataError, match=said):
        preference(line, read_tokenizer(str(model)))


LOST = [
    {"prompt": "same? ", "chosen": "yes", "rejected": "yes"},
    {"prompt": "x" * 60, "chosen": "yes", "rejected": "no"},
    {"prompt": ASKED, "chosen": FIVE, "rejected": [{"role": "user", "content": "hm"}]},
]


def test_both_answers_of_a_pair_are_kept_or_dropped_together_and_counted(model, tmp_path):
    written = preferences.lines(tmp_path / "pairs.jsonl", preferences.planted(40) + LOST)
    report = write_chat_corpus([written], tmp_path / "corpus", model=str(model), context=50, held_out=0.3)
    assert (report.read, report.kept, report.alike, report.too_long, report.without_answer) == (43, 40, 1, 1, 1)
    corpus, marks = open_corpus(tmp_path / "corpus"), open_corpus(marks_of(tmp_path / "corpus"))
    tokenizer, seen = read_tokenizer(str(model)), 0
    for part in ("train", "held-out"):
        pairs = Pairs(corpus.only(part), marks.only(part))
        seen += len(pairs)
        for pair in map(pairs.__getitem__, range(len(pairs))):
            better, worse = (tokenizer.decode(row[row != -100]) for row in pair["labels"])
            assert better.endswith("<|end|>")
            assert preferences.value(better.removesuffix("<|end|>")) > preferences.value(worse.removesuffix("<|end|>"))
    assert seen == report.kept
    assert report.tokens_by_role["chosen"] + report.tokens_by_role["rejected"] == report.bearing_tokens


def test_long_ones_are_cut_if_asked(model, tmp_path):
    record = {"prompt": "x", "chosen": "y" * 30, "rejected": "z" * 90}
    written = preferences.lines(tmp_path / "pairs.jsonl", [record])
    report = write_chat_corpus([written], tmp_path / "corpus", model=str(model), context=50, too_long="cut")
    assert (report.cut, report.longest) == (1, 50)


def test_preferences_and_conversations_do_not_mix(model, tmp_path):
    mixed = [*preferences.planted(1), {"prompt": "x", "completion": "y"}]
    written = preferences.lines(tmp_path / "pairs.jsonl", mixed)
    with pytest.raises(DataError, match="line 2: a corpus holds preferences or conversations, not both"):
        write_chat_corpus([written], tmp_path / "corpus", model=str(model), context=50)
    assert [each.name for each in tmp_path.iterdir()] == ["pairs.jsonl"]


def test_a_batch_is_as_long_as_its_longest_row_and_padding_bears_no_loss(model, tmp_path):
    folder = preferences.corpus(tmp_path / "corpus", model, held_out=0.0)
    pairs = Pairs(open_corpus(folder), open_corpus(marks_of(folder)))
    samples = [pairs[number] for number in range(6)]
    batch = padded(samples)
    assert batch["input_ids"].shape == (6, 2, max(each["input_ids"].shape[-1] for each in samples))
    for number, sample in enumerate(samples):
        length = sample["labels"].shape[-1]
        assert torch.equal(batch["labels"][number, :, :length], sample["labels"])
        assert (batch["labels"][number, :, length:] == -100).all()


def test_preview_names_the_answers(model, tmp_path):
    written = preferences.lines(tmp_path / "pairs.jsonl", preferences.planted(9))
    words = ["data", "chat", written, "--model", str(model), "--to", str(tmp_path / "corpus"), "--context", "50"]
    made = CliRunner().invoke(app, words)
    assert made.exit_code == 0, made.output
    assert "9 of 9 pairs kept; none cut or dropped" in " ".join(made.output.split())
    shown = CliRunner().invoke(app, ["data", "preview", str(tmp_path / "corpus"), "--count", "1"])
    (first, *_), said = preferences.planted(9), " ".join(shown.output.split())
    assert f"0: [[{first['chosen']}<|end|>]] chosen: {len(first['chosen']) + 1} of" in said
    assert f"0: [[{first['rejected']}<|end|>]] rejected: {len(first['rejected']) + 1} of" in said
    assert len(preview(tmp_path / "corpus", first=8, count=9).documents) == 2
    with pytest.raises(DataError, match="has 9 pairs: there is no number 9"):
        preview(tmp_path / "corpus", first=9)
