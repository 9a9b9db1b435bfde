"""docs/guide/serving.md: llama.cpp's server is asked over HTTP, the folder for vLLM loads, Ollama's template agrees."""

import json
import re
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

import surefoot
from surefoot import load_recipe
from surefoot.exports.chat import Chat
from surefoot.exports.decode import Sampling
from surefoot.exports.gguf_tokenizer import tokenizer_of
from surefoot.exports.transformers_folder import write_folder
from surefoot.finetuning.chat_corpus import write_chat_corpus
from tests import tuned_models

pytest.importorskip("gguf")
transformers = pytest.importorskip("transformers")
PAGE = Path(__file__).parents[2] / "docs" / "guide" / "serving.md"
TALKS = [
    [("user", "3?")],
    [("system", "Answer."), ("user", "4? café")],
    [("system", "Answer."), ("user", "3?"), ("assistant", "yes"), ("user", "4?")],
]
SERVER = """
import sys
{page}
print("at", server.listening_address, flush=True)
sys.stdin.read()
"""


def messages(talk):
    return [{"role": role, "content": text} for role, text in talk]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """It learned to answer a first question with yes, and a second one with no."""
    folder = tmp_path_factory.mktemp("served")
    base = tuned_models.llama(folder / "base", vocab_size=300, max_position_embeddings=96)
    tuned_models.tokenizer(base)
    talk = [("user", "3?"), ("assistant", "yes"), ("user", "4?"), ("assistant", "no")]
    (folder / "talks.jsonl").write_text((json.dumps({"messages": messages(talk)}) + "\n") * 60)
    write_chat_corpus([str(folder / "talks.jsonl")], folder / "corpus", model=str(base), context=64)
    words = [f"model={base}", f"data={folder / 'corpus'}", "context=63", "lr=0.02", "micro_batch_size=4", "rank=8"]
    return surefoot.train(load_recipe("finetune", [*words, "max_steps=40"]), path=str(folder / "run")).path


@pytest.fixture(scope="module")
def export(run):
    made = surefoot.export(run, formats=["hf", "gguf"])
    assert not any(each.reason for each in made.formats), made.formats
    return {each.format: each.path for each in made.formats}


@pytest.fixture(scope="module")
def tokenizer(export):
    return transformers.AutoTokenizer.from_pretrained(export["hf"], local_files_only=True)


def tokens_of(tokenizer, talk):
    text = tokenizer.apply_chat_template(messages(talk), tokenize=False, add_generation_prompt=True)
    return tokenizer(text, add_special_tokens=False)["input_ids"]


def answers(run):
    chat = Chat(run, sampling=Sampling(temperature=0))
    return [chat.answer("3?").text, chat.answer("4?").text]


def blocks(kind):
    return re.findall(rf"```{kind}\n(.*?)```", PAGE.read_text(), re.DOTALL)


def test_llama_cpp_s_server_renders_the_same_tokens_and_answers_as_the_run(run, export, tokenizer):
    pytest.importorskip("xllamacpp")
    (page,) = blocks("py")
    code = SERVER.format(page=page.replace("runs/tuned/export/model.Q4_K_M.gguf", export["gguf"]))
    typed = [sys.executable, "-I", "-W", "ignore", "-c", code]
    with subprocess.Popen(
        typed, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as server:
        address = next((line.split()[1] for line in server.stdout if line.startswith("at ")), None)
        assert address, "it did not start"

        def ask(route, **given):
            asked = urllib.request.Request(address + route, json.dumps(given).encode())
            return json.load(urllib.request.urlopen(asked, timeout=60))

        for talk in TALKS:
            rendered = ask("/apply-template", messages=messages(talk))["prompt"]
            tokens = ask("/tokenize", content=rendered, add_special=True, parse_special=True)["tokens"]
            assert tokens == tokens_of(tokenizer, talk)
        said = [("user", "3?")]
        for question in (None, "4?"):
            said += [("user", question)] if question else []
            (choice,) = ask("/v1/chat/completions", messages=messages(said), temperature=0, max_tokens=20)["choices"]
            assert choice["finish_reason"] == "stop"
            said.append(("assistant", choice["message"]["content"]))
        assert [text for role, text in said if role == "assistant"] == answers(run) == ["yes", "no"]


def test_the_folder_for_vllm_has_what_vllm_reads_and_answers_as_the_run(run, export, tokenizer):
    folder = Path(export["hf"])
    assert json.loads((folder / "config.json").read_text())["architectures"] == ["LlamaForCausalLM"]
    names = {each.name for each in folder.iterdir()}
    assert {"model.safetensors", "tokenizer.json", "tokenizer_config.json", "generation_config.json"} <= names
    assert tokenizer.chat_template == tuned_models.TEMPLATE
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, local_files_only=True)
    given = tokenizer([tokenizer.decode(tokens_of(tokenizer, TALKS[0]))], add_special_tokens=False, return_tensors="pt")
    made = model.generate(**given, do_sample=False, max_new_tokens=20)[0, given["input_ids"].shape[1] :]
    assert tokenizer.decode(made) == f"{answers(run)[0]}<|end|>"


def test_servers_are_told_where_a_turn_ends_though_the_base_model_s_texts_end_otherwise(tmp_path):
    base = tuned_models.tokenizer(tuned_models.llama(tmp_path / "base", vocab_size=300))
    file = base / "tokenizer_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "eos_token": "<s>"}))
    recipe = load_recipe("finetune", [f"model={base}", f"data={tmp_path}/rows.safetensors"])
    found = tokenizer_of(recipe)
    assert (found.end, found.end_of_turn) == (0, 1)
    model = transformers.AutoModelForCausalLM.from_pretrained(base)
    write_folder(model, tmp_path / "with", str(base))
    assert ends_in(tmp_path / "with") == [0, 1]
    (base / "chat_template.jinja").write_text("{{ raise_exception('no') }}")
    write_folder(model, tmp_path / "refused", str(base))
    (base / "chat_template.jinja").unlink()
    write_folder(model, tmp_path / "without", str(base))
    assert ends_in(tmp_path / "refused") == ends_in(tmp_path / "without") == 0


def ends_in(folder):
    return json.loads((folder / "generation_config.json").read_text())["eos_token_id"]


def test_the_template_of_the_modelfile_renders_the_tokens_of_the_tokenizer_s(tokenizer):
    """Go's words for a loop and for fields are few here, so Jinja, which transformers brings, stands in for Go."""
    from jinja2 import Environment

    (modelfile,) = (each for each in blocks("text") if each.startswith("FROM"))
    template = re.search(r'TEMPLATE """(.*?)"""', modelfile, re.DOTALL).group(1)
    words = {
        "{{ range .Messages }}": "{% for message in messages %}",
        "{{ end }}": "{% endfor %}",
        "{{ .Role }}": "{{ message.role }}",
        "{{ .Content }}": "{{ message.content }}",
    }
    assert set(re.findall(r"\{\{.*?\}\}", template)) == set(words)
    for go, jinja in words.items():
        template = template.replace(go, jinja)
    rendering = Environment(keep_trailing_newline=True).from_string(template)
    for talk in TALKS:
        rendered = rendering.render(messages=messages(talk))
        assert tokenizer(rendered, add_special_tokens=False)["input_ids"] == tokens_of(tokenizer, talk)
    assert re.search(r"PARAMETER stop (.*)", modelfile).group(1) == tokenizer.eos_token
