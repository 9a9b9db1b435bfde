"""loss-on-prompt: the buggy and the fixed program, and what looks like it and is fine."""

from tests.checks.programs import named, twin, whole
from tests.checks.text.programs import END, START
from tests.checks.text.tuned import texts, tuned


def whole_texts(tokens, mask, labels):
    return tokens.masked_fill(mask == 0, -100)


@twin("loss-on-prompt")
def _(buggy):
    findings = tuned(texts(), relabel=whole_texts if buggy else lambda tokens, mask, labels: labels)
    assert all(each.severity == "info" for each in findings.findings)
    return findings


def test_plain_texts_have_no_mark_of_an_answer():
    rows = [([START, *(6 + whole(26, 5 + n % 4, seed=n)).tolist(), END], 0) for n in range(24)]
    assert named(tuned(rows, relabel=whole_texts)) == []
