"""export --format gguf: run in llama.cpp, with the tokens of its tokenizer; without llama.cpp, in transformers."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

import surefoot
from surefoot.cli.main import app
from surefoot.errors import ParityError
from surefoot.exports import gguf_file, gguf_tokenizer, llama_cpp
from surefoot.recipe.load import load_recipe

gguf = pytest.importorskip("gguf")
tokenizers = pytest.importorskip("tokenizers")
transformers = pytest.importorskip("transformers")
pytest.importorskip("xllamacpp")

SHAPE = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "head_dim": 8}
TEXT = "def f(x):\n    return x  # don't 1234567 IT'S 3.14 naïve café\n"
SPLITS = {name: expression for expression, name in gguf_tokenizer._SPLITS.items()}


def base(folder, *, splits="gpt-2", **config):
    """A Llama with random weights, and a tokenizer that splits in this way and learned one text."""
    level = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=splits == "gpt-2")
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.decoder, made.pre_tokenizer = tokenizers.decoders.ByteLevel(), level
    if splits in SPLITS:
        first = tokenizers.pre_tokenizers.Split(tokenizers.Regex(SPLITS[splits]), "isolated")
        made.pre_tokenizer = tokenizers.pre_tokenizers.Sequence([first, level])
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=300, initial_alphabet=level.alphabet(), special_tokens=["<s>", "</s>"], show_progress=False
    )
    made.train_from_iterator([TEXT] * 20, trainer)
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=made, bos_token="<s>", eos_token="</s>")
    fast.chat_template = "{{ messages[0].content }}"
    fast.save_pretrained(folder)
    shape = transformers.LlamaConfig(
        vocab_size=304, num_key_value_heads=2, max_position_embeddings=64, **SHAPE, **config
    )
    transformers.LlamaForCausalLM(shape).save_pretrained(folder)
    return folder


def exported(folder, tmp_path):
    """One step of fine-tuning, and its GGUF."""
    rows = torch.arange(8)[:, None] + torch.arange(12) + 2
    save_file({"input_ids": rows, "labels": rows.clone()}, tmp_path / "rows.safetensors")
    knobs = ["method=full", "context=12", "micro_batch_size=2", "max_steps=1"]
    recipe = load_recipe("finetune", [f"model={folder}", f"data={tmp_path}/rows.safetensors", *knobs])
    run = surefoot.train(recipe, path=str(tmp_path / "run"))
    (made,) = surefoot.export(run.path, formats=["gguf"]).formats
    return made


def test_llama_cpp_runs_the_built_in_llama_and_rows_that_did_not_move_are_noticed(tmp_path, monkeypatch):
    recipe = load_recipe("llama", ["layers=2", "context=32", "micro_batch_size=2", "max_steps=1"])
    run = surefoot.train(recipe, path=str(tmp_path / "run"))
    (made,) = surefoot.export(run.path, formats=["gguf"]).formats
    assert made.difference < 1e-6
    assert (made.compared, made.note) == ("llama.cpp", "float32; a tokenizer of bytes")
    monkeypatch.setattr(gguf_file, "_rows", lambda name, tensor, config: tensor)
    with pytest.raises(ParityError, match=r"model\.gguf differ"):
        surefoot.export(run.path, formats=["gguf"])


@pytest.mark.sweep
@pytest.mark.parametrize("splits", ["gpt-2", *SPLITS])
def test_llama_cpp_makes_the_tokens_of_the_folder_s_tokenizer(splits, tmp_path):
    made = exported(base(tmp_path / "base", splits=splits), tmp_path)
    assert made.difference < 1e-6
    assert made.note == "float32; tokenizer of the folder it began with"
    fields = gguf.GGUFReader(made.path).fields
    assert fields["tokenizer.ggml.pre"].contents() == splits
    assert fields["tokenizer.chat_template"].contents() == "{{ messages[0].content }}"
    ends = [fields[f"tokenizer.ggml.{which}_token_id"].contents() for which in ("bos", "eos")]
    assert ends == [0, 1]


def test_other_tokens_in_llama_cpp_are_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(gguf_tokenizer, "splits_of", lambda table: "default")
    with pytest.raises(ParityError, match=r"llama\.cpp makes other tokens of a text with .*model\.gguf"):
        exported(base(tmp_path / "base", splits="llama-bpe"), tmp_path)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"byte_fallback": True}, "llama.cpp has no name for how tokenizer.json splits a text"),
        ({"merges": 3}, "tokenizer.json cannot be read: "),
        (None, "tokenizer.json cannot be read: "),
    ],
)
def test_a_tokenizer_that_llama_cpp_does_not_have_is_left_out(change, said, tmp_path):
    file = base(tmp_path / "base") / "tokenizer.json"
    table = json.loads(file.read_text())
    file.write_text(json.dumps({**table, "model": {**table["model"], **change}} if change else {}))
    recipe = load_recipe("finetune", [f"model={file.parent}", f"data={tmp_path}/rows.safetensors"])
    found = gguf_tokenizer.tokenizer_of(recipe)
    assert found.said.startswith(f"no tokenizer: {said}")
    assert found.encode is None


def test_tokens_that_are_too_unlikely_for_float32_are_not_compared(tmp_path):
    folder = base(tmp_path / "base")
    state = load_file(folder / "model.safetensors")
    save_file(
        {**state, "lm_head.weight": 1000 * state["lm_head.weight"]}, folder / "model.safetensors", {"format": "pt"}
    )
    assert exported(folder, tmp_path).difference < 1e-5


SCALED = {"rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
SCALED["original_max_position_embeddings"] = 16


@pytest.mark.sweep
@pytest.mark.parametrize(
    "config",
    [
        {"rope_parameters": SCALED},
        {"rope_parameters": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.0}},
        {"attention_bias": True, "mlp_bias": True},
        {"tie_word_embeddings": True},
    ],
    ids=["llama3", "linear", "biases", "tied"],
)
def test_llamas_of_other_kinds(config, tmp_path):
    assert exported(base(tmp_path / "base", **config), tmp_path).difference < 1e-6


def test_a_file_that_llama_cpp_does_not_run_has_its_reason(tmp_path, monkeypatch):
    monkeypatch.setattr(gguf_tokenizer, "NEVER", [])
    made = exported(base(tmp_path / "base"), tmp_path)
    assert not made.reason  # this tokenizer has merges
    (tmp_path / "base" / "tokenizer.json").write_text("{}")
    (tmp_path / "run" / "again").mkdir()
    made = exported(tmp_path / "base", tmp_path / "run" / "again")
    assert made.reason.startswith("llama.cpp does not run model.gguf: llama_model_load: error loading model")
    assert not list((tmp_path / "run" / "again").rglob("*.gguf"))


@pytest.mark.sweep
def test_without_llama_cpp_it_is_compared_in_transformers(tmp_path, monkeypatch):
    monkeypatch.setattr(llama_cpp, "is_installed", lambda: False)
    assert exported(base(tmp_path / "base"), tmp_path).difference < 1e-6
    (tmp_path / "scaled").mkdir()
    made = exported(base(tmp_path / "scaled" / "base", rope_parameters=SCALED), tmp_path / "scaled")
    assert "pip install xllamacpp to compare it in llama.cpp" in made.reason


@pytest.mark.sweep
def test_llama_cpp_makes_the_tokens_of_the_corpus(tmp_path):
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "a.txt").write_text(TEXT * 200)
    words = ["data", "tokenize", str(tmp_path / "text"), "--to", str(tmp_path / "corpus"), "--tokenizer", "bpe:300"]
    made = CliRunner().invoke(app, words)
    assert made.exit_code == 0, made.output
    knobs = [f"corpus={tmp_path}/corpus", "layers=1", "context=16", "micro_batch_size=2", "max_steps=1"]
    run = surefoot.train(load_recipe("llama", knobs), path=str(tmp_path / "run"))
    (made,) = surefoot.export(run.path, formats=["gguf"]).formats
    assert made.difference < 1e-6
    assert made.note == "float32; tokenizer of the corpus"
