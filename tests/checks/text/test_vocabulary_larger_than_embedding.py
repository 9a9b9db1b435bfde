"""vocabulary-larger-than-embedding: the buggy and the fixed program."""

import tempfile

from tests.checks.programs import named, twin
from tests.checks.text.tuned import talked


@twin("vocabulary-larger-than-embedding")
def _(buggy):
    with tempfile.TemporaryDirectory() as folder:
        return talked(folder, size=34 if buggy else 32, template="")


def test_rows_without_a_token_are_fine(tmp_path):
    assert named(talked(str(tmp_path), size=30, template="")) == []
