"""Packed documents: attention without a matrix equals the matrix, and each document alone; what a kernel is given."""

import copy
import sys
from functools import partial
from types import SimpleNamespace

import pytest
import torch
import transformers
from torch.nn.functional import cross_entropy, scaled_dot_product_attention
from torch.utils.checkpoint import checkpoint

from surefoot.data.packing import IGNORED
from surefoot.finetuning import documents as attention
from surefoot.finetuning.documents import (
    NAME,
    Lengths,
    as_matrix,
    by_kernel,
    holds_documents,
    mask_of,
    one_by_one,
    same_document,
)
from surefoot.finetuning.methods import peft_unwarned
from surefoot.finetuning.tasks import task_loss
from surefoot.world import cuda
from tests import tuned_models

SIZES = {**tuned_models.TEXT, "max_position_embeddings": 64}
ROWS = [[5, 1, 12, 9, -5], [32], [2, 30]]
"""The documents of each row, and its padding."""


def batch(rows=ROWS):
    torch.manual_seed(0)
    numbers = [[-1 if length < 0 else n for n, length in enumerate(row) for _ in range(abs(length))] for row in rows]
    positions = [[at if length > 0 else 0 for length in row for at in range(abs(length))] for row in rows]
    numbers, positions = torch.tensor(numbers), torch.tensor(positions)
    tokens = torch.randint(0, tuned_models.VOCABULARY, numbers.shape)
    targets = torch.randint(0, tuned_models.VOCABULARY, numbers.shape).masked_fill(numbers < 0, IGNORED)
    return tokens, targets, positions, numbers


def llama(**more):
    torch.manual_seed(1)
    sizes = {"intermediate_size": 64, "num_key_value_heads": 1, "initializer_range": 0.3}
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**{**SIZES, **sizes, **more}))


def mistral():
    torch.manual_seed(1)
    sizes = {"intermediate_size": 64, "num_key_value_heads": 1, "sliding_window": 8, "initializer_range": 0.3}
    return transformers.MistralForCausalLM(transformers.MistralConfig(**SIZES, **sizes))


def gpt2():
    torch.manual_seed(1)
    return transformers.GPT2LMHeadModel(
        transformers.GPT2Config(vocab_size=64, n_embd=32, n_layer=2, n_head=2, n_positions=64, initializer_range=0.3)
    ).eval()


def loss_and_gradients(model, given):
    model.zero_grad()
    summed, count = task_loss(model, given)
    (summed / count).backward()
    return summed / count, {name: each.grad.clone() for name, each in model.named_parameters()}


def assert_equal(found, expected):
    torch.testing.assert_close(found[0], expected[0], rtol=1e-6, atol=0)
    largest = max(each.abs().max() for each in expected[1].values())
    for name, gradient in expected[1].items():
        assert (found[1][name] - gradient).abs().max() < 1e-6 * largest, name


@pytest.mark.parametrize("make", [llama, gpt2])
@pytest.mark.parametrize("rows", [ROWS, [[32]], [[1] * 32]])
def test_loss_and_gradients_are_those_of_a_matrix(make, rows):
    model, given = make().double(), batch(rows)
    with as_matrix():
        expected = loss_and_gradients(model, given)
    assert model.config._attn_implementation == "sdpa"
    found = loss_and_gradients(model, given)
    assert model.config._attn_implementation == NAME
    assert_equal(found, expected)


@pytest.mark.parametrize("make", [llama, gpt2, mistral])
def test_a_packed_row_is_its_documents_alone(make):
    model, (tokens, targets, positions, numbers) = make(), batch()
    summed, _ = task_loss(model, (tokens, targets, positions, numbers))
    plain, alone = make(), 0.0
    for row, lengths in enumerate(ROWS):
        for text, labels in zip(*(each[row].split(list(map(abs, lengths))) for each in (tokens, targets)), strict=True):
            logits = plain(input_ids=text[None]).logits[0]
            alone += cross_entropy(logits, labels, ignore_index=IGNORED, reduction="sum")
    torch.testing.assert_close(summed, alone, rtol=1e-5, atol=0)


def test_no_tensor_of_a_step_is_a_matrix_of_all_tokens():
    model, given = llama(max_position_embeddings=512), batch([[64] * 8])
    sizes = []
    with torch.autograd.graph.saved_tensors_hooks(lambda each: sizes.append(each.numel()) or each, lambda each: each):
        task_loss(model, given)
    assert max(sizes) < 512 * 512 / 2


def test_recomputed_blocks_still_keep_documents_apart():
    given, model = batch(), llama(use_cache=False).double()
    expected = loss_and_gradients(model, given)
    for block in model.model.layers:
        block.forward = partial(checkpoint, block.forward, use_reentrant=False)
    assert_equal(loss_and_gradients(model, given), expected)


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")  # dynamo's
def test_a_compiled_model_keeps_documents_apart():
    model = llama(use_cache=False).double()
    expected = loss_and_gradients(model, batch())
    model.compile(backend="eager")
    for rows in (ROWS, [[8, 24], [10, 22], [16, 16]], ROWS):
        found = loss_and_gradients(model, batch(rows))
    assert_equal(found, expected)


def test_after_training_the_model_takes_usual_masks_as_before():
    model, plain = llama(), llama()
    task_loss(model, batch())
    tokens = batch()[0]
    padded = torch.ones_like(tokens)
    padded[:, :7] = 0
    for given in ({}, {"attention_mask": padded}):
        assert torch.equal(model(input_ids=tokens, **given).logits, plain(input_ids=tokens, **given).logits)
    assert "attn" not in model.config.to_json_string().replace("attention", "")


def test_a_model_with_another_attention_gets_the_matrix():
    model = llama()
    model.set_attn_implementation("eager")
    numbers = batch()[3]
    assert torch.equal(mask_of(model, numbers), same_document(numbers))
    assert model.config._attn_implementation == "eager"
    assert not holds_documents(mask_of(torch.nn.Linear(1, 1), numbers))


def test_a_call_that_is_recorded_for_other_models_has_the_matrix():
    model, numbers = llama(), batch()[3]
    with as_matrix():
        assert torch.equal(mask_of(model, numbers), same_document(numbers))
    assert model.config._attn_implementation == "sdpa"
    assert holds_documents(mask_of(model, numbers))


class MakesMasks(transformers.LlamaForCausalLM):
    """Its source, which is this file, says "sdpa"."""


def test_a_model_that_asks_what_its_attention_is_called_gets_the_matrix():
    model = MakesMasks(llama().config)
    assert not holds_documents(mask_of(model, batch()[3]))
    assert model.config._attn_implementation == "sdpa"


def test_a_model_with_adapters_takes_documents():
    peft = pytest.importorskip("peft")
    plain, given = llama(), batch()
    expected, _ = task_loss(plain, given)
    with peft_unwarned():
        adapted = peft.get_peft_model(llama(), peft.LoraConfig(r=2, target_modules="all-linear"))
    assert holds_documents(mask_of(adapted, given[3]))
    torch.testing.assert_close(task_loss(adapted, given)[0], expected)


def test_an_encoder_sees_both_sides_of_its_document():
    torch.manual_seed(1)
    config = transformers.BertConfig(**SIZES, intermediate_size=64, initializer_range=0.3)
    model = transformers.BertForMaskedLM(config).eval()
    tokens, _, positions, numbers = batch()
    packed = model(tokens, attention_mask=mask_of(model, numbers, causal=False), position_ids=positions).logits
    matrix = copy.deepcopy(model)
    matrix.set_attn_implementation("sdpa")
    mask = same_document(numbers, causal=False)
    torch.testing.assert_close(packed, matrix(tokens, attention_mask=mask, position_ids=positions).logits)
    torch.testing.assert_close(packed[2, 2:], model(tokens[2:, 2:]).logits[0])


@pytest.mark.parametrize("window", [None, 8])
@pytest.mark.parametrize("scaling", [None, 0.5])
def test_the_kernel_is_given_what_equals_each_document_alone(window, scaling, monkeypatch):
    """The kernel itself runs on CUDA; in its place stands what its page says that it computes."""
    monkeypatch.setattr("torch.nn.attention.varlen.varlen_attn", as_documented)
    attention._kernel_arguments.cache_clear()
    torch.manual_seed(0)
    query, key, value = torch.randn(3, 30, 2, 8).unbind()
    lengths = Lengths([5, 1, 24], torch.tensor([0, 5, 6, 30], dtype=torch.int32))
    found = by_kernel(query, key, value, lengths, scaling, causal=True, window=window)
    expected = one_by_one(query, key, value, lengths, scaling, 0.0, causal=True, window=window)
    torch.testing.assert_close(found, expected)


def as_documented(query, key, value, cu_seq_q, cu_seq_k, max_q, max_k, *, window_size=(-1, -1)):
    left, right = window_size
    assert cu_seq_q.dtype == cu_seq_k.dtype == torch.int32
    assert max_q == max_k == int(cu_seq_q.diff().max())
    made = torch.zeros_like(query)
    for first, end in zip(cu_seq_q[:-1].tolist(), cu_seq_q[1:].tolist(), strict=True):
        apart = torch.arange(end - first)[:, None] - torch.arange(end - first)
        mask = ((left < 0) | (apart <= left)) & ((right < 0) | (apart >= -right))
        part = [each[first:end].transpose(0, 1) for each in (query, key, value)]
        made[first:end] = scaled_dot_product_attention(*part, attn_mask=mask).transpose(0, 1)
    return made


@pytest.mark.parametrize(
    ("capability", "dtype", "width", "known"),
    [
        ((8, 0), torch.bfloat16, 64, True),
        ((9, 0), torch.float16, 256, True),
        ((7, 5), torch.float16, 64, False),
        ((8, 0), torch.float32, 64, False),
        ((8, 0), torch.bfloat16, 60, False),
        ((8, 0), torch.bfloat16, 264, False),
    ],
)
def test_the_kernel_is_called_for_what_it_takes(capability, dtype, width, known, monkeypatch):
    monkeypatch.setattr(cuda, "capability", lambda _: capability)
    monkeypatch.setattr(attention, "_kernel_arguments", lambda: frozenset({"window_size"}))
    tensor = SimpleNamespace(is_cuda=True, dtype=dtype, shape=(1, 2, 30, width), device="cuda")
    assert attention._has_kernel(tensor, tensor, tensor) is known
    tensor.is_cuda = False
    assert not attention._has_kernel(tensor, tensor, tensor)


def test_a_torch_without_the_kernel_takes_each_document_alone(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.nn.attention.varlen", None)
    attention._kernel_arguments.cache_clear()
    assert not attention._kernel_arguments()
    attention._kernel_arguments.cache_clear()
