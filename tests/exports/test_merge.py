"""merge and export of adapters: what is written computes what was trained, in plain peft and transformers too."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

import surefoot
from surefoot import load_recipe
from surefoot.cli.main import app
from surefoot.errors import ParityError, RunError
from surefoot.exports import adapter as adapters
from surefoot.exports.merge import merge
from tests import tuned_models

pytest.importorskip("peft", reason="pip install peft")

PLAIN = """
import sys, torch
sys.modules["surefoot"] = None
import peft, transformers
base, adapter, program, bits = sys.argv[1:]
four = transformers.BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True)
given = {"quantization_config": four} if bits == "4" else {}
model = transformers.AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32, **given)
model = peft.PeftModel.from_pretrained(model, adapter).eval()
for layer in model.modules():  # on some CPUs bitsandbytes rounds the scales of its layers again, in evaluation
    layer.support_avx512bf16_for_cpu = False
tokens = torch.arange(32).view(2, 16)
with torch.no_grad():
    logits = model(input_ids=tokens).logits
assert torch.equal(logits, torch.export.load(program).module()(input_ids=tokens)["logits"]), "logits differ"
"""


@pytest.fixture(scope="module")
def parts(tmp_path_factory) -> tuple[Path, Path]:
    here = tmp_path_factory.mktemp("merge")
    return tuned_models.llama(here / "llama"), tuned_models.corpus(here / "corpus")


def run_of(parts: tuple[Path, Path], folder: Path, *words: str):
    small = ["context=16", "micro_batch_size=2", "rank=2", "max_steps=4", "lr=0.05"]
    return surefoot.train(
        load_recipe("finetune", [f"model={parts[0]}", f"data={parts[1]}", *small, *words]), path=str(folder)
    )


@pytest.mark.sweep
@pytest.mark.parametrize("method", ["lora", "qlora"])
def test_plain_peft_reads_the_adapters_and_computes_the_same_logits(method, parts, tmp_path):
    run = run_of(parts, tmp_path / "run", f"method={method}")
    record = surefoot.export(run.path)
    assert record.adapter_difference == 0
    bits = "4" if method == "qlora" else "32"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PLAIN, str(parts[0]), record.adapter, record.program, bits],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.sweep
@pytest.mark.parametrize(
    "words", [["method=lora"], ["method=dora"], ["method=qlora", "precision=bf16-mixed"], ["method=full"]]
)
def test_a_merged_folder_computes_what_was_trained(words, parts, tmp_path):
    run = run_of(parts, tmp_path / "run", *words)
    record = merge(run.path)
    assert record.difference <= record.tolerance
    merged, first = load_file(Path(record.folder) / "model.safetensors"), load_file(parts[0] / "model.safetensors")
    assert merged.keys() == first.keys()
    assert not torch.equal(merged["model.layers.0.mlp.up_proj.weight"], first["model.layers.0.mlp.up_proj.weight"])
    assert json.loads((Path(record.folder) / "config.json").read_text())["model_type"] == "llama"


def test_a_merge_that_drops_the_scaling_is_caught(parts, tmp_path, monkeypatch):
    run = run_of(parts, tmp_path / "run")

    def halved(model, dtype):
        for module in model.modules():
            for name in module.scaling if hasattr(module, "lora_A") else ():
                module.scaling[name] /= 2
        return model.merge_and_unload()

    monkeypatch.setattr("surefoot.exports.merge.merged", halved)
    with pytest.raises(ParityError, match="the outputs of the merged model differ"):
        merge(run.path)


def test_adapters_that_are_not_all_written_are_caught(parts, tmp_path, monkeypatch):
    run, real = run_of(parts, tmp_path / "run"), adapters.sync_file

    def damaged(path):
        if path.name == adapters.WEIGHTS:
            save_file({name: 0 * each for name, each in load_file(path).items()}, path)
        real(path)

    monkeypatch.setattr(adapters, "sync_file", damaged)
    with pytest.raises(ParityError, match="the outputs of the exported adapter differ"):
        surefoot.export(run.path)


def test_the_tokenizer_goes_with_the_weights(parts, tmp_path):
    (parts[0] / "tokenizer.json").write_text("{}")
    try:
        record = merge(run_of(parts, tmp_path / "run").path, to=str(tmp_path / "out"))
    finally:
        (parts[0] / "tokenizer.json").unlink()
    assert record.copied == ("tokenizer.json",)
    assert (tmp_path / "out" / "tokenizer.json").read_text() == "{}"


def test_merge_from_the_command_line(parts, tmp_path):
    run = run_of(parts, tmp_path / "run")
    made = CliRunner().invoke(app, ["merge", run.path])
    assert made.exit_code == 0, made.output
    assert "merged: adapters" in made.output
    with pytest.raises(RunError, match="is not empty; name another folder"):
        merge(run.path)


def test_a_model_that_is_not_of_transformers_is_refused(tmp_path):
    run = surefoot.train(load_recipe("regression", ["samples=64", "max_steps=2"]), path=str(tmp_path / "run"))
    with pytest.raises(RunError, match="Linear is no model of transformers; `surefoot export` writes its weights"):
        merge(run.path)


@pytest.mark.sweep
@pytest.mark.parametrize("method", ["lora", "dora", "qlora"])
def test_formats_without_adapters_are_written_with_them_merged(method, parts, tmp_path):
    (parts[0] / "tokenizer.json").write_text("{}")
    try:
        made = surefoot.export(run_of(parts, tmp_path / "run", f"method={method}").path, formats=["hf", "gguf"])
    finally:
        (parts[0] / "tokenizer.json").unlink()
    folder, gguf = made.formats
    assert folder.difference <= folder.tolerance == 1e-4
    assert folder.note == "LlamaForCausalLM, as transformers saves it; adapters merged; with tokenizer.json"
    assert gguf.difference <= gguf.tolerance == 1e-4
    assert load_file(Path(folder.path) / "model.safetensors").keys() == load_file(parts[0] / "model.safetensors").keys()


def test_a_folder_without_its_adapters_is_caught_and_the_first_module_named(parts, tmp_path, monkeypatch):
    monkeypatch.setattr("surefoot.exports.formats.merged", lambda model, dtype: adapters.without_adapters(model))
    with pytest.raises(
        ParityError, match=r"the first module that differs: base_model\.model\.model\.layers\.0\..*_proj"
    ):
        surefoot.export(run_of(parts, tmp_path / "run").path, formats=["hf"])
