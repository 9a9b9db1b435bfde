"""other-chat-template: the buggy and the fixed program, and what looks like it and is fine."""

import tempfile

import pytest

from tests.checks.programs import named, twin
from tests.checks.text.tuned import MARK, talked


@twin("other-chat-template")
def _(buggy):
    with tempfile.TemporaryDirectory() as folder:
        return talked(folder, mark=[5, 3, 4] if buggy else MARK)


@pytest.mark.parametrize("template", ["", "{% for m in messages %}{% generation %}w3 w4 w5 {{ m['content'] }}"
                                          "{% endgeneration %}{% endfor %}"])  # fmt: skip
def test_no_template_or_the_same_text_from_another_one_is_fine(tmp_path, template):
    assert named(talked(str(tmp_path), template=template)) == []
