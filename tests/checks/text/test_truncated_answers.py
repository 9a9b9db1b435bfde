"""truncated-answers: the buggy and the fixed program, and what looks like it and is fine."""

import torch

from tests.checks.programs import named, twin, whole
from tests.checks.text.programs import START
from tests.checks.text.tuned import MARK, texts, tuned


@twin("truncated-answers")
def _(buggy):
    rows = [(tokens[:14] if buggy else tokens, prompt) for tokens, prompt in texts(40)]
    return tuned(rows)


def test_rows_that_are_all_cut_begin_alike_and_are_named_too():
    rows = []
    for number in range(24):
        asked, answer = (6 + whole(26, size, seed=2 * number + part) for part, size in enumerate((4, 9)))
        prompt = [START, *asked.tolist(), *MARK]
        rows.append(((prompt + answer.tolist())[:14], len(prompt)))
    assert named(tuned(rows)) == ["truncated-answers"]


def test_windows_of_a_stream_are_not_answers():
    stream = torch.cat([torch.tensor(tokens) for tokens, _ in texts(60)])
    rows = [(each.tolist(), 0) for each in stream.split(16)[:-1]]
    assert "truncated-answers" not in named(tuned(rows))
