"""bench/gguf_types.py, quickly: both types are made and run, and the float file has the model's perplexity."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.llama_quantiser import folder_of_quantiser

BENCH = Path(__file__).parent.parent / "bench"


@pytest.mark.sweep
def test_it_measures_both_types(tmp_path):
    for package in ("gguf", "xllamacpp"):
        pytest.importorskip(package)
    if folder_of_quantiser(tmp_path) is None:
        pytest.skip("no quantiser of llama.cpp")
    page = tmp_path / "page.md"
    typed = [sys.executable, "gguf_types.py", "--quick", "--steps", "4", "--page", str(page)]
    done = subprocess.run(typed, cwd=BENCH, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1].startswith(
        "RESULT gguf_types: perplexity in llama.cpp on 256 held-out tokens: "
    )
    assert [line.split()[1] for line in page.read_text().splitlines() if line.startswith("| Q")] == ["Q8_0", "Q4_K_M"]
