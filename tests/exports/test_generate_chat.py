"""generate after a fine-tune: the tokenizer is found, and a model that learned conversations answers a message."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import surefoot
from surefoot import load_recipe
from surefoot.cli.main import app
from surefoot.data.tokenize import tokenize
from surefoot.exports.decode import Sampling
from surefoot.exports.merge import merge
from surefoot.finetuning.chat import end_of_turn
from surefoot.finetuning.chat_corpus import write_chat_corpus
from surefoot.finetuning.local_tokenizer import read_tokenizer
from tests import tuned_models

GREEDY = Sampling(temperature=0)
MESSAGE = "<|user|>\n3?<|end|>\n<|assistant|>\n"


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    folder = tuned_models.llama(tmp_path_factory.mktemp("chat") / "model", vocab_size=300)
    return tuned_models.tokenizer(folder)


def corpus(folder: Path, model: Path, *lines: dict) -> str:
    file = folder / "talks.jsonl"
    file.write_text("".join(json.dumps(each) + "\n" for each in lines))
    write_chat_corpus([str(file)], folder / "corpus", model=str(model), context=64)
    return str(folder / "corpus")


@pytest.fixture(scope="module")
def talks(model, tmp_path_factory) -> str:
    answer = {"role": "assistant", "content": "yes"}
    talks = [{"messages": [{"role": "user", "content": f"{n}?"}, answer]} for n in range(60)]
    return corpus(tmp_path_factory.mktemp("talks"), model, *talks)


def tuned(model: Path, data: str, to: Path, *words: str):
    usual = [f"model={model}", f"data={data}", "context=63", "lr=0.02", "micro_batch_size=4", "rank=8"]
    return surefoot.train(load_recipe("finetune", [*usual, *words]), path=str(to))


@pytest.mark.parametrize("method", ["full", "lora", "dora", "qlora"])
def test_a_model_that_learned_conversations_answers_a_message_and_stops(method, model, talks, tmp_path):
    run = tuned(model, talks, tmp_path / "run", "max_steps=30", f"method={method}")
    made = surefoot.generate(run.path, "3?", tokens=30, sampling=GREEDY)
    assert (made.text, made.tokens, made.chat) == ("yes", 4, True)  # the fourth token ends the turn
    raw = surefoot.generate(run.path, MESSAGE, raw=True, tokens=30, sampling=GREEDY)
    assert (raw.text, raw.tokens, raw.chat) == ("yes", 4, False)
    if method == "lora":
        said = CliRunner().invoke(app, ["generate", run.path, "3?", "--temperature", "0"])
        assert (said.stdout, said.exit_code) == ("yes\n", 0)
        assert "prompt in the chat template, --raw for plain text" in said.stderr
        said = CliRunner().invoke(app, ["generate", run.path, MESSAGE, "--raw", "--temperature", "0"])
        assert said.stdout == f"{MESSAGE}yes\n"
        merged = merge(run.path, to=str(tmp_path / "merged"))
        folder = surefoot.generate(merged.folder, "3?", tokens=30, sampling=GREEDY)
        assert (folder.text, folder.chat) == ("yes", True)


def test_what_learned_texts_goes_on_from_them(model, tmp_path):
    lines = [{"prompt": f"{n}? ", "completion": "yes"} for n in range(60)]
    run = tuned(model, corpus(tmp_path, model, *lines), tmp_path / "run", "max_steps=30", "method=full")
    made = surefoot.generate(run.path, "3? ", tokens=30, sampling=GREEDY)
    assert (made.text, made.tokens, made.chat) == ("yes", 4, False)


def test_a_corpus_of_text_and_the_first_folder_bring_their_tokenizers(model, tmp_path):
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "a.txt").write_text("the cat sat on the mat. " * 200)
    how = {"tokenizer": str(model / "tokenizer.json"), "end_of_document": "<|end|>"}
    tokenize([str(tmp_path / "text")], tmp_path / "corpus", **how)
    for number, data in enumerate((str(tmp_path / "corpus"), "")):
        run = tuned(model, data, tmp_path / f"run{number}", "max_steps=1", "method=full")
        made = surefoot.generate(run.path, "the", tokens=5)
        assert (made.tokens <= 5, made.chat) == (True, False)
        assert surefoot.generate(run.path, "the", tokens=5, tokenizer=str(model)).text == made.text


def test_the_end_of_a_turn_is_what_the_template_writes_there(model):
    tokenizer = read_tokenizer(str(model))
    tokenizer.eos_token = "<s>"
    assert end_of_turn(tokenizer) == tokenizer.convert_tokens_to_ids("<|end|>")
    tokenizer.chat_template = "{% for message in messages %}{{ message['content'] }}\n{% endfor %}"
    assert end_of_turn(tokenizer) is None
