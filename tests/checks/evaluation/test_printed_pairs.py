"""What is read from a line that a script prints: names, numbers, and which metric of which data a name means."""

import pytest

from surefoot.checks.evaluation.number_words import kind_and_phase, phase_in
from surefoot.checks.evaluation.printed_pairs import pairs_in

LINES = {
    "loss: 0.31": "loss 0.31",
    "loss=0.31": "loss 0.31",
    "acc 93.2%": "acc 93.2%",
    "epoch 3 | val_loss 0.4": "epoch 3, val_loss 0.4",
    "{'loss': 0.31, 'eval_accuracy': '0.5', 'epoch': 1.0}": "loss 0.31, eval_accuracy 0.5, epoch 1",
    "Train Epoch: 1 [640/60000 (1%)]\tLoss: 2.300000": "Train Epoch 1, Loss 2.3",
    "Test set: Average loss: 0.0528, Accuracy: 87/100 (87%)": "Average loss 0.0528, Accuracy 0.87",
    "2026-11-19 03:17:50,123 INFO root: epoch 3 loss 0.3": "epoch 3, loss 0.3",
    "loss: tensor(0.3123, grad_fn=<NllLossBackward0>)": "loss 0.3123",
    "loss: np.float64(0.25)": "loss 0.25",
    "\x1b[32mloss\x1b[0m 0.25": "loss 0.25",
    "Epoch 3/10 - 3s - loss: 0.4 - val_loss: 0.5": "Epoch 0.3, loss 0.4, val_loss 0.5",
    "accuracy: 0.75.": "accuracy 0.75",
    "recall@10 0.2": "recall@10 0.2",
    "loss -1.5e-2": "loss -0.015",
    "loss nan": "loss nan",
    "1  0.3  0.9": "",
    "loss [0.1, 0.2]": "",
    "took 3s at 12:30:05, torch 2.13.0": "",
    "loss 1,234.5": "",
    " 45%|####      | 45/100 [00:01<00:01, 44.1it/s, loss=0.31]": "",
}


@pytest.mark.parametrize("line", LINES)
def test_names_and_numbers_are_read_from_a_line(line):
    read = (f"{' '.join(pair.name)} {pair.value:g}{'%' * pair.percent}" for pair in pairs_in(line))
    assert ", ".join(read) == LINES[line]


def test_decimals_are_those_that_were_printed():
    assert [pair.decimals for pair in pairs_in("a 0.310 b 3 c 3.1e-05 d 1e+20 e 5/20")] == [3, 0, 6, 0, 2]


@pytest.mark.parametrize(
    ("name", "kind", "phase"),
    [
        ("val_loss", "loss", "held out"),
        ("train/acc@1", "accuracy", "train"),
        ("trainAcc", "accuracy", "train"),
        ("held-out accuracy", "accuracy", "held out"),
        ("cross-entropy loss", "cross entropy", ""),
        ("ctc_loss", "ctc", ""),
        ("accuracy before training", "accuracy", ""),
        ("validation error rate", "error rate", "held out"),
        ("ROC AUC", "auc", ""),
        ("F1-score", "f1", ""),
        ("best acc", "", ""),
        ("D loss", "", ""),
        ("dice loss", "", ""),
        ("domain accuracy", "", ""),
        ("train_val loss", "", ""),
        ("recall at", "", ""),
        ("epoch", "", ""),
    ],
)
def test_a_name_counts_only_if_every_word_is_known(name, kind, phase):
    found, said = kind_and_phase(tuple(name.split()))
    assert found == kind
    assert not kind or said == phase


def test_the_last_part_of_the_data_that_a_line_names_holds_for_what_follows():
    *_, last = pairs_in("train: loss 0.3 | test: loss 0.4 acc 0.5")
    assert phase_in(last.before) == "held out"
