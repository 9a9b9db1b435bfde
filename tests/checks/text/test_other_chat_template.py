"""other-chat-template: the buggy and the fixed program, and what looks like it and is fine."""

import tempfile
from pathlib import Path

import pytest

from tests.checks.programs import named, twin
from tests.checks.text.tuned import MARK, texts, tuned

TEMPLATE = "{% for m in messages %}{% if m['role'] == 'assistant' %}w3 w4 w5 {% endif %}{{ m['content'] }}{% endfor %}"


def talked(folder: str, *, mark=MARK, template=TEMPLATE, size=32):
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    plain = Tokenizer(models.WordLevel({f"w{n}": n for n in range(size)}, unk_token="w0"))
    plain.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=plain, eos_token="w2", bos_token="w1", name_or_path=folder)
    if template:
        (Path(folder) / "chat_template.jinja").write_text(template, encoding="utf-8")
    findings = tuned(texts(mark=mark), _name_or_path=tokenizer.name_or_path)
    return findings


@twin("other-chat-template")
def _(buggy):
    with tempfile.TemporaryDirectory() as folder:
        return talked(folder, mark=[5, 3, 4] if buggy else MARK)


@pytest.mark.parametrize("template", ["", "{% for m in messages %}{% generation %}w3 w4 w5 {{ m['content'] }}"
                                          "{% endgeneration %}{% endfor %}"])  # fmt: skip
def test_no_template_or_the_same_text_from_another_one_is_fine(tmp_path, template):
    assert named(talked(str(tmp_path), template=template)) == []
