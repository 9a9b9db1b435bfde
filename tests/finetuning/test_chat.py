"""Conversations: the assistant's tokens and no others bear loss, whatever the template says about them."""

import json
import shutil
from functools import reduce
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import surefoot
from surefoot import load_recipe
from surefoot.cli.main import app
from surefoot.data.formats import open_corpus
from surefoot.data.marked import MarkedDocuments
from surefoot.errors import DataError, RecipeError
from surefoot.finetuning.chat import conversation, role_of
from surefoot.finetuning.chat_corpus import marks_of, preview, read_report, write_chat_corpus
from surefoot.finetuning.local_tokenizer import read_tokenizer
from tests import tuned_models

TALK = {
    "messages": [
        {"role": "system", "content": "be short"},
        {"role": "user", "content": "two and two?"},
        {"role": "assistant", "content": "four"},
        {"role": "user", "content": "and one?"},
        {"role": "assistant", "content": "five"},
    ]
}


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    return tuned_models.tokenizer(tmp_path_factory.mktemp("chat") / "model")


def bearing(made, tokenizer) -> str:
    return tokenizer.decode([token for token, mark in zip(made.tokens, made.marks, strict=True) if mark & 1])


@pytest.mark.parametrize("template", [tuned_models.TEMPLATE, tuned_models.WITH_GENERATION])
def test_what_the_assistant_says_and_the_end_of_its_turn_bear_loss(template, tmp_path):
    tokenizer = read_tokenizer(str(tuned_models.tokenizer(tmp_path / "model", template)))
    made = conversation(TALK, tokenizer)
    assert bearing(made, tokenizer) == "four<|end|>\nfive<|end|>\n"
    assert made.tokens == tokenizer(tokenizer.apply_chat_template(TALK["messages"], tokenize=False))["input_ids"]
    said = {role: tokenizer.decode([t for t, m in zip(made.tokens, made.marks, strict=True) if role_of(m) == role])
            for role in ("system", "user", "assistant")}  # fmt: skip
    assert said["system"] == "<|system|>\nbe short<|end|>\n"
    assert said["user"].count("<|user|>") == 2
    assert said["assistant"].endswith("five<|end|>\n")


def test_a_completion_bears_loss_with_its_end_and_a_prompt_does_not(model):
    tokenizer = read_tokenizer(str(model))
    made = conversation({"prompt": "two and two? ", "completion": "four"}, tokenizer)
    assert bearing(made, tokenizer) == "four<|end|>"
    assert tokenizer.decode(made.tokens) == "two and two? four<|end|>"


CHANGING = (
    "{% for message in messages %}<|{{ message['role'] }}|>{% if not loop.last and message['role'] == 'assistant' %}"
    "(thoughts removed){% else %}{{ message['content'] }}{% endif %}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


@pytest.mark.parametrize(
    ("template", "line", "said"),
    [
        (CHANGING, TALK, "writes message 3 differently once others follow"),
        (None, TALK, "the tokenizer has no chat template"),
        (tuned_models.TEMPLATE, {"messages": []}, "messages must be a list of at least one message"),
        (tuned_models.TEMPLATE, {"messages": [{"role": "user"}]}, "a message must have role and content"),
        (tuned_models.TEMPLATE, {"text": "x"}, "a line needs messages, or prompt and completion; this one has text"),
        (tuned_models.TEMPLATE, [1], "a line must be an object"),
    ],
)
def test_what_cannot_be_marked_is_refused_with_what_to_do(template, line, said, tmp_path):
    tokenizer = read_tokenizer(str(tuned_models.tokenizer(tmp_path / "model", template)))
    with pytest.raises(DataError, match=said):
        conversation(line, tokenizer)


# ------------------------------------------------------------------------------------------- corpora


def lines(file: Path, *records) -> str:
    file.write_text("".join(json.dumps(each) + "\n" for each in records), encoding="utf-8")
    return str(file)


@pytest.fixture
def talks(tmp_path) -> str:
    short = [{"prompt": f"{n} and {n}? ", "completion": f"{2 * n}"} for n in range(40)]
    silent = {"messages": [{"role": "user", "content": "anyone?"}]}
    long = {"prompt": "x" * 300, "completion": "y"}
    return lines(tmp_path / "talks.jsonl", TALK, *short, silent, long)


def test_everything_read_is_kept_or_counted_as_dropped(talks, model, tmp_path):
    report = write_chat_corpus([talks], tmp_path / "corpus", model=str(model), context=100)
    assert (report.read, report.kept, report.too_long, report.without_answer, report.cut) == (43, 41, 1, 1, 0)
    assert report.tokens == sum(report.tokens_by_role.values()) == open_corpus(tmp_path / "corpus").manifest.tokens
    assert 0 < report.bearing_tokens < report.tokens
    assert read_report(tmp_path / "corpus") == report


def test_long_ones_are_cut_if_asked_and_dropped_if_no_answer_is_left(talks, model, tmp_path):
    report = write_chat_corpus([talks], tmp_path / "corpus", model=str(model), context=50, too_long="cut")
    assert (report.cut, report.too_long, report.longest) == (1, 1, 50)


def test_a_row_has_the_loss_of_its_marks_and_documents_apart(talks, model, tmp_path):
    write_chat_corpus([talks], tmp_path / "corpus", model=str(model), context=100)
    rows = MarkedDocuments(open_corpus(tmp_path / "corpus"), open_corpus(marks_of(tmp_path / "corpus")), 128)
    seen, tokenizer = "", read_tokenizer(str(model))
    for number in range(len(rows)):
        tokens, targets, positions, documents = rows[number]
        counted = targets != -100
        assert torch.equal(targets[:-1][counted[:-1]], tokens[1:][counted[:-1]]) or not counted[-1]
        assert (documents[counted] >= 0).all()
        assert (positions[documents >= 0] < 100).all()
        seen += tokenizer.decode(targets[counted])
    assert seen.count("four") == 1
    assert seen.count("78<|end|>") == 1
    assert "and" not in seen


CALL = [{"type": "function", "function": {"name": "add", "arguments": {"a": 2, "b": 2}}}]
USES_TOOLS = {
    "messages": [
        {"role": "user", "content": "two and two?"},
        {"role": "assistant", "content": "", "tool_calls": CALL},
        {"role": "tool", "content": "4"},
        {"role": "assistant", "content": "four"},
    ]
}
WITH_TOOLS = tuned_models.TEMPLATE.replace(
    "{{ message['content'] }}",
    "{{ message['content'] or '' }}{{ message['tool_calls'] | string if 'tool_calls' in message else '' }}",
)


@pytest.mark.parametrize("content", ["", " \n", None, [], [{"type": "text", "text": ""}]])
@pytest.mark.parametrize("template", [tuned_models.TEMPLATE, tuned_models.WITH_GENERATION])
def test_a_turn_whose_tool_calls_the_template_drops_bears_no_loss(template, content, tmp_path):
    tokenizer = read_tokenizer(str(tuned_models.tokenizer(tmp_path / "model", template)))
    user, call, *rest = USES_TOOLS["messages"]
    made = conversation({"messages": [user, {**call, "content": content}, *rest]}, tokenizer)
    assert bearing(made, tokenizer) == "four<|end|>\n"
    assert (made.empty_turns, made.unwritten) == (1, ("tool_calls",))
    assert "None" not in tokenizer.decode(made.tokens)


def test_a_turn_whose_tool_calls_are_written_is_learned(tmp_path):
    tokenizer = read_tokenizer(str(tuned_models.tokenizer(tmp_path / "model", WITH_TOOLS)))
    made = conversation(USES_TOOLS, tokenizer)
    assert "'name': 'add'" in bearing(made, tokenizer)
    assert (made.empty_turns, made.unwritten) == (0, ())
    tools = [{"type": "function", "function": {"name": "add"}}]
    assert conversation({**USES_TOOLS, "tools": tools}, tokenizer).unwritten == ("tools",)


def test_an_empty_turn_whose_place_the_template_hides_takes_the_loss_of_the_whole_line(tmp_path):
    hides = "{% if messages | length < 4 %}{{ raise_exception('more') }}{% endif %}" + tuned_models.WITH_GENERATION
    tokenizer = read_tokenizer(str(tuned_models.tokenizer(tmp_path / "model", hides)))
    assert conversation(USES_TOOLS, tokenizer).bearing == 0


def test_lines_with_empty_answers_and_dropped_tool_calls_are_named(model, tmp_path):
    silent = [{"prompt": "two? ", "completion": each} for each in ("", None)]
    file = lines(tmp_path / "talks.jsonl", TALK, USES_TOOLS, *silent, *[USES_TOOLS] * 5)
    words = ["data", "chat", file, "--model", str(model), "--to", str(tmp_path / "corpus"), "--context", "100"]
    said = CliRunner().invoke(app, words, env={"COLUMNS": "2000"})
    assert said.exit_code == 0, said.output
    assert (
        f"without loss: empty answers in 8 lines: {file}:2, {file}:3, {file}:4, {file}:5, {file}:6, ..." in said.stdout
    )
    assert (
        f"not in the corpus: tool_calls in 6 lines: {file}:2, {file}:5, {file}:6, {file}:7, {file}:8, ...; the"
        in said.stdout
    )
    report = read_report(tmp_path / "corpus")
    assert (report.read, report.kept, report.without_answer) == (9, 7, 2)
    assert (report.empty_turns.count, report.unwritten["tool_calls"].count) == (8, 6)
    only = {"messages": USES_TOOLS["messages"][:2]}
    with pytest.raises(
        DataError, match=r"1 with an empty answer, first .*talks\.jsonl:1; .* does not write tool_calls$"
    ):
        write_chat_corpus([lines(tmp_path / "talks.jsonl", only)], tmp_path / "none", model=str(model), context=100)


def test_a_line_that_is_no_utf8_is_named_with_its_byte(model, tmp_path):
    file = tmp_path / "talks.jsonl"
    file.write_bytes(b'{"prompt": "a", "completion": "b"}\n\n{"prompt": "a\xff", "completion": "b"}\n')
    with pytest.raises(DataError, match=r"talks\.jsonl, line 3: it is not UTF-8: byte 0xff at 13; each line must be"):
        write_chat_corpus([str(file)], tmp_path / "corpus", model=str(model), context=100)
    assert [each.name for each in tmp_path.iterdir()] == ["talks.jsonl"]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (("added_tokens", 0, "id", -7), "integer `-7`, expected u32 at line 1 column"),
        (("pre_tokenizer", "pattern", "Regex", "(a"), "unmatched parenthesis at line 1 column"),
        (None, "there is no folder"),
    ],
)
def test_a_tokenizer_that_cannot_be_read_gives_one_line(model, talks, tmp_path, wrong, said):
    if wrong is not None:
        shutil.copytree(model, tmp_path / "wrong")
        table = json.loads((model / "tokenizer.json").read_text())
        table["pre_tokenizer"] = {"type": "Split", "pattern": {"Regex": "a"}, "behavior": "Isolated", "invert": False}
        *path, last, value = wrong
        reduce(lambda part, key: part[key], path, table)[last] = value
        (tmp_path / "wrong" / "tokenizer.json").write_text(json.dumps(table))
    with pytest.raises(DataError, match=said) as raised:
        write_chat_corpus([talks], tmp_path / "corpus", model=str(tmp_path / "wrong"), context=100)
    assert "\n" not in str(raised.value)


def test_a_changed_mark_is_found(talks, model, tmp_path):
    write_chat_corpus([talks], tmp_path / "corpus", model=str(model), context=100)
    assert CliRunner().invoke(app, ["data", "verify", str(tmp_path / "corpus")]).exit_code == 0
    file = tmp_path / "corpus" / "marks" / "train.ds"
    file.write_bytes(bytes([file.read_bytes()[0] ^ 1]) + file.read_bytes()[1:])
    done = CliRunner().invoke(app, ["data", "verify", str(tmp_path / "corpus")])
    assert isinstance(done.exception, DataError)
    assert "marks" in str(done.exception)


def test_a_number_beyond_all_documents_is_refused(talks, model, tmp_path):
    write_chat_corpus([talks], tmp_path / "corpus", model=str(model), context=100)
    done = CliRunner().invoke(app, ["data", "preview", str(tmp_path / "corpus"), "--first", str(10**25)])
    assert isinstance(done.exception, DataError)
    assert "41 documents: there is no number 1" in str(done.exception)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"tokenizer_class": "BertTokenizer", "vocab_file": "none"}, "Missing [UNK] token"),
        ({"backend": "\ud800"}, "surrogates not allowed"),
    ],
)
def test_a_tokenizer_that_cannot_be_used_is_refused_where_it_is_read(model, tmp_path, settings, said):
    folder = tmp_path / "model"
    shutil.copytree(model, folder)
    file = folder / "tokenizer_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **settings}))
    with pytest.raises(DataError, match="holds no tokenizer that transformers can read") as raised:
        read_tokenizer(str(folder))
    assert said in str(raised.value)


def test_preview_can_be_read_without_colour(talks, model, tmp_path):
    made = CliRunner().invoke(
        app, ["data", "chat", talks, "--model", str(model), "--to", str(tmp_path / "corpus"), "--context", "100"]
    )
    assert made.exit_code == 0, made.output
    said = " ".join(made.output.split())
    assert "41 of 43 conversations kept; 1 dropped with more than 100 tokens; 1 dropped without an answer" in said
    shown = CliRunner().invoke(app, ["data", "preview", str(tmp_path / "corpus"), "--count", "2"])
    assert "[[four<|end|>\n]]" in shown.output
    assert "0 and 0? [[0<|end|>]]" in shown.output
    assert len(preview(tmp_path / "corpus", first=40, count=9).documents) == 1


def test_a_model_learns_from_conversations(talks, model, tmp_path):
    write_chat_corpus([talks], tmp_path / "corpus", model=str(model), context=100, held_out=0.3)
    llama = tuned_models.llama(tmp_path / "llama", vocab_size=300, max_position_embeddings=128)
    words = [f"model={llama}", f"data={tmp_path / 'corpus'}", "micro_batch_size=2", "max_steps=3", "rank=2"]
    run = surefoot.train(load_recipe("finetune", [*words, "context=100"]), path=str(tmp_path / "run"))
    assert run.status == "finished"
    assert run.token_ledger is None
    assert [row.evaluation_loss for row in run.rows()][-1] is not None
    with pytest.raises(RecipeError, match="set context="):
        load_recipe("finetune", [*words, "context=20"])
