"""The log-probabilities of a corpus of preferences under its reference policy, in a file beside the corpus.

corpus/reference.safetensors   for each part of the corpus a row per pair: the chosen and the rejected answer
corpus/reference.json          the corpus and the model that they belong to; written last
"""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import load, save
from xxhash import xxh3_128_hexdigest

from surefoot.data.formats import open_corpus
from surefoot.errors import DataError, RecipeError
from surefoot.finetuning.hub import is_of_hub, pinned
from surefoot.plain_files import refusals_of, write_whole
from surefoot.records.codec import read_record, to_json
from surefoot.records.reference import Reference

RECORD, TENSORS = "reference.json", "reference.safetensors"
LOOKED_BYTES = 4096
"""How much of each file of weights and each of its tensors a digest looks at."""


def write_reference(corpus: Path, record: Reference, rows: dict[str, torch.Tensor]) -> Reference:
    """Writes the log-probabilities of each part. Returns the record with their digest."""
    content = save(rows)
    done = Reference(**{**vars(record), "digest": xxh3_128_hexdigest(content)})
    (corpus / RECORD).unlink(missing_ok=True)
    write_whole(corpus / TENSORS, content, shared=True)
    write_whole(corpus / RECORD, to_json(done) + "\n", shared=True)
    return done


def read_reference(corpus: str, model: str) -> tuple[Reference, dict[str, torch.Tensor]]:
    """The log-probabilities of each part. Raises if they are not of this corpus and of the model in this folder."""
    command = f"surefoot data reference {corpus} --model {model}"
    folder = Path(corpus)
    if not (folder / RECORD).is_file():
        raise RecipeError(
            f"{corpus} has no log-probabilities of the reference policy, which loss=dpo needs where the model's own "
            f"weights are trained: compute them once with `{command}`, or use method=lora"
        )
    record = read_record(Reference, folder / RECORD, error=DataError)
    with refusals_of(folder / TENSORS, what="read"):
        content = (folder / TENSORS).read_bytes()
    if xxh3_128_hexdigest(content) != record.digest:
        raise DataError(f"{folder / TENSORS} is damaged; compute it again: {command}")
    if record.corpus != open_corpus(corpus).identity():
        raise DataError(f"{folder / TENSORS} belongs to another corpus; compute it again: {command}")
    here = weights_digest(model)
    if here and record.weights != here:
        raise RecipeError(
            f"{folder / TENSORS} is of other weights ({record.model}) than those in {model}: the reference policy is "
            f"the model before training; compute it again: {command}"
        )
    return record, load(content)


def weights_digest(folder: str) -> str:
    """A digest of the weights in a folder: all of each header, and the beginning of each tensor. Empty without any."""
    if is_of_hub(folder):
        return pinned(folder)  # a commit is a digest
    parts = []
    for file in sorted(Path(folder).glob("*.safetensors")):
        with file.open("rb") as opened:
            header = int.from_bytes(opened.read(8), "little")
            begun = opened.read(header)
            parts.append(begun)
            for begin in sorted({int(each["data_offsets"][0]) for each in _tensors(begun, file)}):
                opened.seek(8 + header + begin)
                parts.append(opened.read(LOOKED_BYTES))
    return xxh3_128_hexdigest(b"".join(parts)) if parts else ""


def _tensors(header: bytes, file: Path) -> list[dict[str, list[int]]]:
    from surefoot.records.codec import parse

    try:
        return [each for name, each in parse(header.decode()).items() if name != "__metadata__"]
    except (ValueError, AttributeError) as error:
        raise DataError(f"{file} is not a whole safetensors file ({error}); copy or export it again") from error
