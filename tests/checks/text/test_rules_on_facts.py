"""The rules of text on facts made by hand: each on the facts of its bug, and on the nearest that are fine."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from surefoot.checks.facts.models import ModelFacts
from surefoot.checks.facts.samples import SampleFacts
from surefoot.checks.facts.text import NarrowTokens, TextFacts
from tests.checks.by_hand import Limit, Rules, also, but
from tests.checks.facts import inputs, probe, sequence, trained_text

rule = Rules()


@pytest.mark.parametrize("shown", rule.shown)
def test_a_rule_reports_the_facts_of_its_bug(shown):
    shown.holds()


@pytest.mark.parametrize("spared", rule.spared)
def test_it_spares_the_nearest_facts_that_are_fine(spared):
    spared.holds()


@pytest.mark.parametrize("limited", rule.limits)
@settings(max_examples=10, deadline=None, database=None)
@given(data=st.data())
def test_a_number_counts_from_its_limit_on(limited, data):
    limited.holds(data)


LEAK = Limit(3e-5, 3.01e-5, (0.0, 9.0))
"""Rounding changes outputs by less, in standard deviations."""


# ------------------------------------------------------------------------------------------- what a model sees


@rule(
    "attention-across-documents",
    "logits of a document change by 0.5 standard deviations when the one before changes",
    "Net",
    limits={"change": LEAK},
)
def _(change=0.5):
    return ModelFacts(probes=(probe(documents=change),))


@rule(
    "future-tokens-in-logits",
    "logits change by 0.5 standard deviations when only later tokens are changed",
    "Net",
    severity="error",
    spared=[but(shift=None), but(model="Encoder")],
    limits={"change": LEAK, "shift": Limit(0, 1)},
)
def _(change=0.5, shift=1, model="Net"):
    return ModelFacts(probes=(probe(future=change),)), TextFacts(sequences=(sequence(shift=shift, model=model),))


@rule(
    "padding-in-attention",
    "outputs at real positions change by 0.5 standard deviations with the padding",
    "Net",
    also=[
        also("the mask hides text instead of padding", change=0.0, hides_text=True),
        also("scores of padding are set to zero or near it", at="model.py:6", change=0.0, lines=("model.py:6",)),
        also("outputs at real positions change", lines=("model.py:6",)),
    ],
    limits={"change": LEAK},
)
def _(change=0.5, hides_text=False, lines=()):
    return ModelFacts(probes=(probe(padding=change, hides_text=hides_text),)), TextFacts(lenient_masks=lines)


@rule(
    "interleaved-zero-tokens",
    "of the tokens (8, 64) that enter embed, at most every second is nonzero",
    "embed",
    severity="error",
    spared=[but(zeros=False)],
)
def _(zeros=True):
    return SampleFacts(inputs=(inputs(), inputs(layer="embed", shape=(8, 64), zero_interleaved=zeros)))


# ------------------------------------------------------------------------------------------- targets


@rule(
    "padding-in-loss",
    "3 targets at padded positions count in the loss (padding known from a mask)",
    "train.py:7",
    severity="error",
    also=[also("3 targets at padded", at="the recipe's loss", where="")],
    limits={"counted": Limit(0, 1)},
)
def _(counted=3, **fields):
    return TextFacts(sequences=(sequence(padding_counted=counted, padding_seen_by="a mask", **fields),))


@rule(
    "targets-equal-inputs",
    "100% of the targets equal the token at their position, and the model is causal",
    "train.py:7",
    severity="error",
    spared=[but(shift=1), but(shift=None), but(model="Other")],
    also=[also("100% of the targets", at="the recipe's loss", where="")],
    limits={"future": Limit(3e-5, 2.9e-5, (0.0, 9.0)), "past": LEAK, "present": LEAK},
)
def _(shift=0, future=0.0, past=0.5, present=0.5, **fields):
    seen = probe(future=future, past=past, present=present)
    return ModelFacts(probes=(seen,)), TextFacts(sequences=(sequence(shift=shift, **fields),))


@rule(
    "targets-shifted-twice",
    "100% of the targets equal the token 2 positions ahead",
    "train.py:7",
    spared=[but(shift=0), but(shift=None), but(beside=1), but(shift=-1, future=0.5)],
    also=[
        also("100% of the targets equal the token 1 position behind", shift=-1),
        also("equal the token 1 position behind", shift=-1, future=0.5, past=0.5),
        also("equal the token 2 positions behind", shift=-2, future=0.5),
        also("equal the token 2 positions ahead", at="the recipe's loss", where=""),
    ],
    limits={"shift": Limit(1, 2)},
)
def _(shift=2, beside=None, past=0.0, future=0.0, **fields):
    rows = (sequence(shift=shift, **fields), sequence(shift=beside))
    return ModelFacts(probes=(probe(past=past, future=future),)), TextFacts(sequences=rows)


@rule(
    "end-token-ignored",
    "the end token 0 is in the inputs but never a valid target",
    "train.py:7",
    spared=[but(end=None)],
    also=[
        also("the end token 0 is in the inputs", at="the recipe's loss", where=""),
        also("the end token 0 is in the inputs", texts=1),
    ],
)
def _(end=0, texts=0, **fields):
    read = (trained_text(end="</s>", end_read=8, learned=8),) * texts
    return TextFacts(sequences=(sequence(ends_ignored=end, **fields),), trained_texts=read)


# ------------------------------------------------------------------------------------------- texts of a tuned model


@rule(
    "end-token-ignored",
    "the end token </s> is in 4 of 8 texts and never bears loss",
    "train.py:7",
    spared=[but(end_learned=1)],
    also=[also("the end token </s>", at="the recipe's data", where="")],
    limits={"end_read": Limit(3, 4, (0, 8)), "learned": Limit(3, 4, (0, 8))},
)
def _(end_read=4, learned=8, end_learned=0, **fields):
    read = trained_text(end="</s>", end_read=end_read, learned=learned, end_learned=end_learned, **fields)
    return TextFacts(sequences=(sequence(),), trained_texts=(read,))


@rule(
    "doubled-start-token",
    "all 8 texts begin with two start tokens <s>",
    "train.py:7",
    spared=[but(doubled=7)],
    also=[also("all 8 texts", at="the recipe's data", where="")],
    limits={"starts": Limit(3, 4)},
)
def _(starts=8, doubled=None, **fields):
    found = starts if doubled is None else doubled
    return TextFacts(trained_texts=(trained_text(start="<s>", starts=starts, doubled_starts=found, **fields),))


@rule(
    "loss-on-prompt",
    "every token of 8 texts bears loss; all have '[/INST]' between parts that differ",
    "train.py:7",
    severity="info",
    spared=[but(whole=False), but(shared="")],
    also=[also("every token of 8 texts", at="the recipe's data", where="")],
    limits={"rows": Limit(7, 8)},
)
def _(rows=8, whole=True, shared="[/INST]", **fields):
    return TextFacts(trained_texts=(trained_text(rows=rows, whole=whole, shared=shared, **fields),))


@rule(
    "other-chat-template",
    "all texts have '### Answer:' between parts that differ, and none has '[/INST]', which the model's own",
    "train.py:7",
    spared=[but(own_mark="")],
    also=[also("none has '[/INST]'", at="the recipe's data", where="")],
    limits={"rows": Limit(7, 8)},
)
def _(rows=8, own_mark="[/INST]", **fields):
    return TextFacts(trained_texts=(trained_text(rows=rows, own_mark=own_mark, shared="### Answer:", **fields),))


@rule(
    "texts-without-end-token",
    "none of 8 texts of 3 different lengths contains the end token </s>",
    "train.py:7",
    spared=[but(end=""), but(end_read=1)],
    also=[also("none of 8 texts", at="the recipe's data", where="")],
    limits={"rows": Limit(7, 8), "learned": Limit(7, 8), "lengths": Limit(2, 3)},
)
def _(rows=8, learned=8, lengths=3, **fields):
    return TextFacts(trained_texts=(trained_text(
        **{"rows": rows, "learned": learned, "lengths": lengths, "end": "</s>", **fields}
    ),))  # fmt: skip


@rule(
    "truncated-answers",
    "3 of 8 texts have the longest length of 256 tokens and lack the end token </s> or any token that bears loss",
    "train.py:7",
    spared=[but(end=""), but(ended=0), but(lengths=1)],
    also=[
        also("3 of 8 texts", lengths=1, aligned=True),
        also("3 of 8 texts", at="the recipe's data", where=""),
    ],
    limits={"cut": Limit(2, 3, (0, 8)), "rows": Limit(31, 30, (3, 99))},
)
def _(cut=3, rows=8, lengths=3, ended=1, **fields):
    counts = {"cut": cut, "rows": rows, "longest": 256, "lengths": lengths, "ended": ended}
    return TextFacts(trained_texts=(trained_text(**{"end": "</s>", **counts, **fields}),))


@rule(
    "vocabulary-larger-than-embedding",
    "the tokenizer has 32,001 tokens and the embedding of Net 32,000 rows",
    "train.py:7",
    also=[also("the tokenizer has 32,001 tokens", at="the recipe's data", where="")],
    limits={"tokens": Limit(32_000, 32_001)},
)
def _(tokens=32_001, **fields):
    return TextFacts(trained_texts=(trained_text(tokenizer_size=tokens, embedding_rows=32_000, **fields),))


@rule(
    "wrapped-token-ids",
    "tokens are stored as uint8, which holds 256 numbers, for an embedding of 1,000 rows; no token above 255 was seen",
    "the tokens",
    severity="error",
    spared=[but(count=0)],
    also=[also("tokens were created as uint8", severity="warning", in_source=True)],
)
def _(count=2, in_source=False):
    return TextFacts(narrow_tokens=(NarrowTokens("uint8", 256, 1000, in_source),) * count)
