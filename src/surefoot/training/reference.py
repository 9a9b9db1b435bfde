"""reference: the log-probabilities of preferences under the model before training, computed once."""

from collections.abc import Callable, Iterator
from pathlib import Path

import torch

from surefoot.data.formats import open_corpus
from surefoot.data.pairs import Pairs, padded
from surefoot.errors import DataError
from surefoot.finetuning.chat_corpus import holds_pairs, marks_of
from surefoot.finetuning.dpo import answer_log_probabilities
from surefoot.finetuning.hub import pinned
from surefoot.finetuning.local_folder import read_config
from surefoot.finetuning.reference_file import weights_digest, write_reference
from surefoot.finetuning.tasks import build
from surefoot.randomness import kept
from surefoot.recipe.recipe import Precision
from surefoot.records.manifest import HELD_OUT, TRAIN
from surefoot.records.reference import Reference
from surefoot.techniques.precision import autocast, parameters_in
from surefoot.training.init_from import fill
from surefoot.trees import map_tensors
from surefoot.world.world import World


def reference(
    corpus: str,
    *,
    model: str,
    precision: Precision = "32-true",
    micro_batch_size: int = 8,
    tell: Callable[[int], None] = lambda pairs: None,
) -> Reference:
    """Runs the model of a folder over a corpus of preferences and writes what `loss=dpo` needs beside the corpus.

    `precision` should be that of the training. `tell` hears the number of pairs that were done since.
    """
    if not holds_pairs(corpus):
        raise DataError(f"{corpus} holds no preferences; make a corpus of them with `surefoot data chat`")
    model = pinned(model)
    config = read_config(model, recipe="finetune", knob="model")
    whole, marks = open_corpus(corpus), open_corpus(marks_of(corpus))
    world = World()
    with kept(), world, torch.no_grad():
        with world.device, parameters_in(precision):
            network = build(config, "causal").eval()
        fill(network, model)
        rows = dict[str, torch.Tensor]()
        for part in (TRAIN, HELD_OUT):
            pairs = Pairs(whole.only(part), marks.only(part))
            found = [torch.zeros(0, 2)]
            for batch in _batches(pairs, micro_batch_size):
                with autocast(precision, world.device):
                    placed = map_tensors(lambda each: each.to(world.device), batch)
                    found.append(answer_log_probabilities(network, placed).cpu())
                tell(len(found[-1]))
            rows[part] = torch.cat(found)
    record = Reference(
        corpus=whole.identity(),
        model=model,
        weights=weights_digest(model),
        precision=precision,
        pairs=sum(map(len, rows.values())),
    )
    return write_reference(Path(corpus), record, rows)


def _batches(pairs: Pairs, size: int) -> Iterator[dict[str, torch.Tensor]]:
    for first in range(0, len(pairs), size):
        yield padded([pairs[number] for number in range(first, min(first + size, len(pairs)))])
