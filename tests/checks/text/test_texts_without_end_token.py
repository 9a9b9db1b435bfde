"""texts-without-end-token: the buggy and the fixed program, and what looks like it and is fine."""

from tests.checks.programs import named, twin
from tests.checks.text.tuned import texts, tuned


@twin("texts-without-end-token")
def _(buggy):
    return tuned(texts(end=() if buggy else (2,)))


def test_windows_of_one_length_need_no_end():
    rows = [(tokens[:10], prompt) for tokens, prompt in texts(end=())]
    assert "texts-without-end-token" not in named(tuned(rows))


def test_a_model_with_random_weights_has_no_end_to_forget():
    assert named(tuned(texts(end=()), _name_or_path="")) == []
