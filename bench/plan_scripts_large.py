"""plan_scripts_large: what the plan of a 7B script takes of this machine.

    python bench/plan_scripts_large.py [--quick] [--framework] [--out FILE]

Plans `scripts/sft_lora.py` (TRL's SFTTrainer with LoRA) on an RTX 4090 without its weights: from the model's
configuration, from the headers of a safetensors file, and in 4 bits. Each is planned by a process of its own.

cpu_seconds  user and system time of that process and of those it started
peak_bytes   the largest resident memory of one of them

`--quick` takes a model of two layers. `--framework` plans LLaMA-Factory instead, from its own configuration file: LoRA
on an A100 with 80 GB. It is installed in an environment of its own beside this one, with the torch that it brings: some
gigabytes. The last line is the result.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import venv
from pathlib import Path
from typing import Any

from record import write_record

sys.path.append(str(Path(__file__).parent / "scripts"))
from local_model import write_model

ROOT = Path(__file__).parent.parent
ENVIRONMENT = Path(__file__).parent / ".llamafactory"
SCRIPT = Path(__file__).parent / "scripts" / "sft_lora.py"
CASES = {"configuration": (False, []), "headers": (True, []), "4 bits": (False, ["--four-bit"])}
MOST_SECONDS = 90
MOST_BYTES = 4 << 30
_MEASURE = """
import json, resource, subprocess, sys
done = subprocess.run(sys.argv[1:], capture_output=True, text=True)
if done.returncode:
    sys.exit(done.stderr)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
plan = json.loads(done.stdout)
print(json.dumps({
    "cpu_seconds": used.ru_utime + used.ru_stime, "peak_bytes": used.ru_maxrss * 1024,
    "planned_bytes": plan["fit"]["total_bytes"], "parameters": plan["parameters"], "steps": plan["steps"],
}))
"""


CONFIGURATION = """
model_name_or_path: {folder}/model
stage: sft
do_train: true
finetuning_type: lora
lora_rank: 8
lora_target: all
dataset: words
dataset_dir: {folder}
template: llama2
cutoff_len: 1024
output_dir: {folder}/out
per_device_train_batch_size: 2
gradient_accumulation_steps: 4
num_train_epochs: 3.0
bf16: true
report_to: none
"""
SAMPLES = 200


def measured(size: str, *, weights: bool, words: list[str]) -> dict[str, Any]:
    """Plans the script, and says what that took."""
    with tempfile.TemporaryDirectory() as folder:
        write_model(Path(folder), size, weights=weights)
        plan = [sys.executable, "-m", "surefoot", "plan", str(SCRIPT), "--on", "rtx-4090", "--json"]
        return _measured(sys.executable, [*plan, "--", "--model", folder, *words])


def of_framework(size: str, environment: Path) -> dict[str, Any]:
    """Plans LLaMA-Factory from its configuration file, and says what that took."""
    commands = environment / "bin"
    if not (commands / "llamafactory-cli").exists():
        venv.create(environment, with_pip=True, clear=True)
        subprocess.run([commands / "pip", "install", "-q", "llamafactory", "-e", ROOT], check=True)
    with tempfile.TemporaryDirectory() as folder:
        write_model(Path(folder) / "model", size, weights=False)
        turns = [{"instruction": f"w{n}", "input": "", "output": " ".join(["w1"] * 300)} for n in range(SAMPLES)]
        Path(folder, "words.json").write_text(json.dumps(turns), encoding="utf-8")
        Path(folder, "dataset_info.json").write_text('{"words": {"file_name": "words.json"}}', encoding="utf-8")
        file = Path(folder, "lora.yaml")
        file.write_text(CONFIGURATION.format(folder=folder), encoding="utf-8")
        plan = [str(commands / "surefoot"), "plan", "--on", "a100-sxm-80gb", "--json", "--"]
        return _measured(str(commands / "python"), [*plan, "llamafactory-cli", "train", str(file)])


def _measured(python: str, command: list[str]) -> dict[str, Any]:
    done = subprocess.run([python, "-c", _MEASURE, *command], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def main() -> None:
    """Plans all cases, and prints a line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--framework", action="store_true")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    size = "tiny" if asked.quick else "7b"
    rows = {}
    cases = {"LLaMA-Factory": None} if asked.framework else CASES
    for name, case in cases.items():
        rows[name] = each = (
            of_framework(size, ENVIRONMENT) if case is None else measured(size, weights=case[0], words=case[1])
        )
        print(f"{name}: {each['cpu_seconds']:.1f} CPU s, {each['peak_bytes'] / 2**30:.2f} GiB here;", end=" ")
        print(f"{each['parameters']:,} parameters, {each['planned_bytes'] / 2**30:.2f} GiB planned", flush=True)
    if asked.out:
        write_record(asked.out, {"size": size, "cases": rows})
    seconds = max(each["cpu_seconds"] for each in rows.values())
    most = max(each["peak_bytes"] for each in rows.values())
    kept = seconds < MOST_SECONDS and most < MOST_BYTES
    print(f"RESULT cases={len(rows)} cpu_seconds={seconds:.1f} peak_gib={most / 2**30:.2f} kept={int(kept)}")


if __name__ == "__main__":
    main()
