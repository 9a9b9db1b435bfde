"""export --format: each format is run and compared, or says why it cannot be."""

import json
import os
import subprocess
import sys
from itertools import islice
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import surefoot
from surefoot.cli.main import app
from surefoot.errors import MissingPackage, ParityError, RunError
from surefoot.exports import formats, hugging_face, onnx_file, to_gpt2
from surefoot.exports.byte_tokenizer import byte_tokenizer
from surefoot.exports.decode import Decoder, Sampling
from surefoot.exports.trained import trained_model
from surefoot.recipe.load import load_recipe
from surefoot.world.world import World
from tests import exports_models as models

SMALL = {
    "gpt": ["layers=2", "width=32", "heads=2", "context=32", "micro_batch_size=2", "global_batch_tokens=64"],
    "llama": ["layers=2", "context=32", "micro_batch_size=2"],
}


@pytest.fixture(scope="module", params=SMALL)
def text_run(request, tmp_path_factory):
    recipe = load_recipe(request.param, [*SMALL[request.param], "max_steps=3"])
    return surefoot.train(recipe, path=str(tmp_path_factory.mktemp(request.param) / "run"))


def exported(recipe, tmp_path, *names):
    run = surefoot.train(recipe, path=str(tmp_path / "run"))
    return {each.format: each for each in surefoot.export(run.path, recipe, formats=names).formats}


# ------------------------------------------------------------------------------------------- Hugging Face

GREEDY = """
import sys
from transformers import AutoModelForCausalLM, AutoTokenizer
model, tokenizer = AutoModelForCausalLM.from_pretrained(sys.argv[1]), AutoTokenizer.from_pretrained(sys.argv[1])
given = tokenizer("def caf\u00e9", return_tensors="pt")
made = model.generate(**given, do_sample=False, max_length=32, eos_token_id=-1)
assert "surefoot" not in sys.modules
print(given["input_ids"][0].tolist(), made[0].tolist(), sep="|")
"""


@pytest.mark.sweep
def test_transformers_alone_loads_the_folder_offline_and_makes_the_same_tokens(text_run, tmp_path):
    (made,) = surefoot.export(text_run.path, to=str(tmp_path / "out"), formats=["hf"]).formats
    assert made.difference < 1e-6
    assert {"config.json", "generation_config.json", "model.safetensors", "tokenizer.json"} <= set(
        os.listdir(made.path)
    )
    env = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", GREEDY, made.path], capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr
    given, tokens = map(json.loads, done.stdout.strip().splitlines()[-1].split("|"))
    assert given == list("def café".encode())
    world, recipe = (
        World(),
        load_recipe(text_run.target, [f"{k}={v}" for k, v in text_run.knobs.items() if v is not None]),
    )
    with torch.no_grad():
        model = trained_model(recipe, world, text_run.weights)
        ours = islice(Decoder(model, given, context=32, pick=Sampling(temperature=0).picker()), 32 - len(given))
        assert tokens == [*given, *ours]


@pytest.mark.sweep
def test_a_model_of_transformers_saves_itself(tmp_path):
    made = exported(models.bert(), tmp_path, "hf", "onnx")
    assert made["hf"].difference < 1e-6
    assert made["hf"].note.startswith("BertForSequenceClassification")
    assert made["onnx"].difference < 1e-5
    assert made["onnx"].note == "outputs: loss, logits"


def test_the_first_module_that_differs_is_named(tmp_path, monkeypatch):
    """The queries of the second block's heads are not moved, as in a conversion that forgets it."""
    recipe = load_recipe("gpt", [*SMALL["gpt"], "max_steps=1"])
    run, plain = surefoot.train(recipe, path=str(tmp_path / "run")), to_gpt2.to_gpt2

    def forgetful(network):
        config, tensors, modules = plain(network)
        name = "transformer.h.1.attn.c_attn.weight"
        return config, {**tensors, name: network.blocks[1].attention.qkv.weight.detach().t().contiguous()}, modules

    monkeypatch.setattr(hugging_face, "FAMILIES", (forgetful,))
    with pytest.raises(ParityError, match=r"the first module that differs: blocks\.1 \(.*\); do not use it"):
        surefoot.export(run.path, formats=["hf"])


# ------------------------------------------------------------------------------------------- programs


def test_onnx_of_keywords_dicts_and_tuples_and_its_score(tmp_path):
    made = exported(models.vae(), tmp_path / "vae", "onnx", "hf")
    assert made["onnx"].difference < 1e-5
    assert made["onnx"].note == "outputs: 0, 1, 2"
    assert made["hf"].reason.startswith("it is neither a model of transformers nor one with the layers of")
    scores = [
        surefoot.evaluate(path, models.vae(), data="train").scores[0].loss
        for path in (str(tmp_path / "vae" / "run"), made["onnx"].path)
    ]
    assert scores[1] == pytest.approx(scores[0], rel=5e-7)
    assert exported(models.detector(), tmp_path / "detector", "onnx")["onnx"].difference < 1e-5


def test_what_cannot_be_a_program_has_the_exporters_reason(tmp_path):
    made = exported(models.tagger(), tmp_path, "onnx", "gguf")
    assert made["onnx"].reason.startswith(("exports_models.py:", "rnn.py:"))
    assert (
        made["gguf"].reason
        == "it has other layers than Llama; GGUF has a list of architectures, and export knows llama"
    )
    assert not list((tmp_path / "run" / "export").glob("model.onnx*"))


@pytest.mark.sweep
def test_the_first_module_of_a_program_that_differs_is_named(tmp_path, monkeypatch):
    """Every file is written from a network with another bias in its last layer."""
    plain = onnx_file.write

    def spoiled(job, path):
        bias = dict(job.network.named_parameters())
        bias = bias.get("classify.bias", bias.get("network.classify.bias"))
        with torch.no_grad():
            bias += 0.5
            try:
                return plain(job, path)
            finally:
                bias -= 0.5

    monkeypatch.setattr(onnx_file, "write", spoiled)
    recipe = load_recipe("sentiment", ["max_steps=1"])
    run = surefoot.train(recipe, path=str(tmp_path / "run"))
    with pytest.raises(ParityError, match=r"the first module that differs: classify \("):
        surefoot.export(run.path, formats=["onnx"])
    assert not list((tmp_path / "run" / "export").glob(".tapped*"))


@pytest.mark.long
def test_a_compiled_package_runs_in_a_process_of_its_own(tmp_path):
    recipe = load_recipe("sentiment", ["max_steps=1"])
    made = exported(recipe, tmp_path, "aoti")["aoti"]
    assert made.reason == ""
    assert made.difference < 1e-5
    assert made.compared == "a process that has torch alone"
    found = surefoot.evaluate(made.path, data="train", trust_run=True).scores[0].loss
    assert found == pytest.approx(surefoot.evaluate(str(tmp_path / "run"), data="train").scores[0].loss, rel=5e-7)


# ------------------------------------------------------------------------------------------- around


@pytest.mark.parametrize("fixes", [False, True])
def test_what_a_runtime_refuses_is_said_in_its_words_and_not_kept(fixes, tmp_path, monkeypatch):
    real = onnx_file.runner

    def runner(job, path):
        run = real(job, path)

        def picky(call):
            if call.batch_size == 1:
                raise ValueError("a batch of one is too small for me")
            return run(call)

        return picky

    monkeypatch.setattr(onnx_file, "runner", runner)
    monkeypatch.setattr(onnx_file, "FIXES", fixes, raising=False)
    made = exported(models.vae(), tmp_path, "onnx")["onnx"]
    refused = "its runtime refuses float32[1, 6], noise float32[1, 2]: "
    said = made.note.partition("; with free sizes: ")[2] if fixes else made.reason
    assert said.startswith(refused)
    assert said.endswith("ValueError: a batch of one is too small for me")
    assert bool(list(tmp_path.rglob("model.onnx"))) == fixes  # for the sizes of the example call alone
    assert (made.difference < 1e-6) == fixes


def test_the_model_card_says_what_was_trained_and_compared(text_run, tmp_path):
    made = surefoot.export(text_run.path, to=str(tmp_path), formats=["hf"])
    card = (tmp_path / "README.md").read_text()
    for part in (f"| recipe | {text_run.recipe} |", made.weights_digest, "192 tokens in 3 steps", "| hf ("):
        assert part in card


def test_text_of_a_record_cannot_leave_its_cell(tmp_path):
    recipe = surefoot.Recipe(**{**vars(models.vae()), "about": "a | b <script>\n# title"})
    run = surefoot.train(recipe, path=str(tmp_path / "run"))
    surefoot.export(run.path, recipe)
    assert r"It learned a \| b &lt;script> # title." in (tmp_path / "run" / "export" / "README.md").read_text()


def test_bytes_are_their_own_tokens():
    tokenizer = byte_tokenizer(ends=True)
    text = "".join(map(chr, range(1, 300)))
    assert tokenizer.encode(text).ids == list(text.encode())
    assert tokenizer.decode(list(text.encode())) == text
    assert tokenizer.token_to_id("<|endoftext|>") == 256


def test_a_missing_package_names_its_extra(tmp_path, monkeypatch):
    recipe = load_recipe("sentiment", ["max_steps=1"])
    run = surefoot.train(recipe, path=str(tmp_path / "run"))
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(MissingPackage, match=r"ONNX needs onnxruntime: pip install onnxruntime"):
        surefoot.export(run.path, formats=["onnx"])


def test_formats_on_the_command_line(tmp_path):
    recipe = load_recipe("sentiment", ["max_steps=1"])
    run = surefoot.train(recipe, path=str(tmp_path / "run"))
    said = CliRunner().invoke(app, ["export", run.path, "--format", "onnx", "--format", "hf"])
    assert said.exit_code == 1  # one of the formats that were asked for was not written
    words = " ".join(said.output.split())
    assert "onnx: run in onnxruntime on the CPU, tolerance 1e-05" in words
    assert "no hf: it is neither a model of transformers" in words
    assert not (Path(run.path) / "export" / "model.pt2").exists()
    with pytest.raises(RunError, match="no format 'tflite'; known: safetensors, pt2, hf, onnx, aoti, gguf, pte"):
        surefoot.export(run.path, formats=["tflite"])
    assert formats.tolerance_of(torch.ones(1, dtype=torch.bfloat16), 1e-5) == formats.NARROW


# ------------------------------------------------------------------------------------------- ExecuTorch


@pytest.mark.sweep
def test_executorch_computes_the_same_for_smaller_sizes_too(tmp_path):
    pytest.importorskip("executorch", reason="pip install executorch")
    made = exported(load_recipe("gpt", [*SMALL["gpt"], "max_steps=1"]), tmp_path, "pte")["pte"]
    assert made.difference < 1e-5
    assert Path(made.path).name == "model.pte"


def test_without_executorch_the_command_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "executorch", None)
    with pytest.raises(MissingPackage, match=r"a \.pte file needs executorch: pip install executorch"):
        exported(models.vae(), tmp_path, "pte")
