"""chat: the template is applied to all that was said, answers stop and stream, and a full context forgets."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import surefoot
from surefoot import load_recipe
from surefoot.cli.main import app
from surefoot.errors import RunError
from surefoot.exports import chat as module
from surefoot.exports.chat import Chat
from surefoot.exports.decode import Sampling
from surefoot.exports.merge import merge
from surefoot.finetuning.chat_corpus import write_chat_corpus
from tests import tuned_models

GREEDY = Sampling(temperature=0)


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    folder = tuned_models.llama(tmp_path_factory.mktemp("chat") / "model", vocab_size=300, max_position_embeddings=96)
    return tuned_models.tokenizer(folder)


@pytest.fixture(scope="module")
def run(model, tmp_path_factory) -> str:
    """It learned to answer a first question with yes, and a second one with no."""
    folder = tmp_path_factory.mktemp("talks")
    file = folder / "talks.jsonl"
    said = [("user", "3?"), ("assistant", "yes"), ("user", "4?"), ("assistant", "no")]
    turns = [{"role": role, "content": text} for role, text in said]
    file.write_text("".join(json.dumps({"messages": turns}) + "\n" for _ in range(60)))
    write_chat_corpus([str(file)], folder / "corpus", model=str(model), context=64)
    words = [f"model={model}", f"data={folder / 'corpus'}", "context=63", "lr=0.02", "micro_batch_size=4", "rank=8"]
    return surefoot.train(load_recipe("finetune", [*words, "max_steps=40"]), path=str(folder / "run")).path


def prompts_of(chat: Chat, monkeypatch) -> list[str]:
    """What the model is given, as text, from now on."""
    seen = list[str]()
    plain = module.make_tokens

    def make_tokens(network, prompt, **how):
        seen.append(chat._tokenizer.decode(prompt))
        plain(network, prompt, **how)

    monkeypatch.setattr(module, "make_tokens", make_tokens)
    return seen


def test_it_remembers_what_was_said_stops_and_streams(run, monkeypatch):
    chat = Chat(run, sampling=GREEDY)
    seen, pieces = prompts_of(chat, monkeypatch), list[str]()
    first = chat.answer("3?", pieces.append)
    assert (first.text, "".join(pieces), first.tokens, len(pieces)) == ("yes", "yes", 4, 3)
    assert chat.answer("4?").text == "no"
    asked = "<|user|>\n3?<|end|>\n<|assistant|>\n"
    assert seen == [asked, f"{asked}yes<|end|>\n<|user|>\n4?<|end|>\n<|assistant|>\n"]
    chat.forget()
    assert chat.answer("3?").text == "yes"
    assert seen[-1] == asked


def test_a_system_message_comes_first(run, monkeypatch):
    chat = Chat(run, system="Be brief.", sampling=GREEDY)
    seen = prompts_of(chat, monkeypatch)
    for _ in range(2):
        chat.answer("3?")
    assert all(each.startswith("<|system|>\nBe brief.<|end|>\n<|user|>") for each in seen)


def test_a_full_context_forgets_the_oldest_turns_and_says_so(run):
    chat = Chat(run, sampling=GREEDY, tokens=8)
    for number in range(6):
        chat.answer(f"question {number}?")
    assert chat.context == 96
    assert chat.turns[0]["role"] == "user"
    assert chat.turns[0]["content"] != "question 0?"
    assert chat.turns[-2]["content"] == "question 5?"
    lines = "".join(f"question {number}?\n" for number in range(6))
    said = CliRunner().invoke(app, ["chat", run, "--tokens", "8", "--temperature", "0"], input=lines)
    assert said.exit_code == 0, said.output
    assert "the context is full, so the oldest 2 messages were forgotten" in " ".join(said.stderr.split())
    with pytest.raises(RunError, match=r"the message has \d+ tokens with its template; the context is 96"):
        chat.answer("long " * 50)
    assert chat.turns[-1]["role"] == "assistant"


def test_an_interrupted_answer_stays_as_far_as_it_came(run):
    chat = Chat(run, sampling=GREEDY)

    def stop(piece: str) -> None:
        raise KeyboardInterrupt

    assert chat.answer("3?", stop).text == "y"
    assert chat.turns[-1] == {"role": "assistant", "content": "y"}


def test_the_command_reads_lines_and_a_merged_folder_chats_alike(run, tmp_path):
    for path in (run, merge(run, to=str(tmp_path / "merged")).folder):
        typed = ["chat", path, "--temperature", "0"]
        said = CliRunner().invoke(app, typed, input="3?\n\n4?\n/new\n3?\n/end\n4?\n")
        assert (said.stdout, said.exit_code) == ("yes\nno\nyes\n", 0)
        records = CliRunner().invoke(app, [*typed, "--json"], input="3?\n4?\n").stdout.splitlines()
        assert [json.loads(each)["text"] for each in records] == ["yes", "no"]


def test_what_has_no_template_cannot_chat(model, tmp_path):
    plain = tuned_models.llama(tmp_path / "plain", vocab_size=300)
    tuned_models.tokenizer(plain, None)
    with pytest.raises(RunError, match="has no chat template, so it cannot chat; `surefoot generate"):
        Chat(str(plain))
    gpt = surefoot.train(
        load_recipe("gpt", ["layers=1", "width=16", "heads=2", "context=16", "max_steps=1", "micro_batch_size=1"]),
        path=str(tmp_path / "gpt"),
    )
    with pytest.raises(RunError, match="has no chat template"):
        Chat(gpt.path)
