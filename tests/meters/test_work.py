"""Work: the operators of a step with their FLOPs and bytes, the same from a few blocks as from all."""

import pytest
import torch

from surefoot import load_recipe
from surefoot.meters.books import Books
from surefoot.meters.work import starred
from surefoot.planning.fake_step import Tracing
from surefoot.planning.repeated_blocks import find_repeats
from surefoot.planning.unrolled_trace import run_few
from surefoot.records.usage import Work
from surefoot.torch_inside.operators import private

scaled = private("_scaled_mm")


def booked(run) -> list[Work]:
    with Books(work=True) as books:
        run()
        return list(books.close().work)


def test_a_product_reads_both_operands_and_writes_its_result():
    left, right = torch.ones(3, 5), torch.ones(5, 7)
    (work,) = booked(lambda: left @ right)
    assert (work.operator, work.format, work.shape) == ("mm", "fp32", (1, 3, 7, 5))
    assert (work.flops, work.bytes_moved) == (2 * 3 * 5 * 7, 4 * (3 * 5 + 5 * 7 + 3 * 7))


def test_a_product_in_fp8_has_a_shape_and_a_format_of_its_own():
    left, right = torch.ones(16, 32).to(torch.float8_e4m3fn), torch.ones(48, 32).to(torch.float8_e4m3fn)
    scale = torch.ones(())
    (work,) = booked(lambda: scaled(left, right.t(), scale, scale, out_dtype=torch.bfloat16))
    assert (work.operator, work.format, work.shape) == ("_scaled_mm", "fp8", (1, 16, 48, 32))
    assert work.flops == 2 * 16 * 48 * 32


def test_float32_products_of_cudnn_are_in_tf32_and_others_where_torch_is_told_so():
    image, kernel, matrix = torch.ones(1, 3, 8, 8), torch.ones(4, 3, 3, 3), torch.ones(8, 8)
    (convolved,) = booked(lambda: torch.nn.functional.conv2d(image, kernel))
    (product,) = booked(lambda: matrix @ matrix)
    assert (convolved.format, product.format) == ("tf32", "fp32")
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("high")
        (product,) = booked(lambda: matrix @ matrix)
    finally:
        torch.set_float32_matmul_precision(before)
    image, kernel = image.bfloat16(), kernel.bfloat16()
    (halves,) = booked(lambda: torch.nn.functional.conv2d(image, kernel))
    assert (product.format, halves.format) == ("tf32", "bf16")


def test_views_do_nothing_and_an_expanded_operand_is_read_once():
    one, many = torch.ones(1, 8), torch.ones(4, 8)
    (work,) = booked(lambda: many.t().t() + one.expand(4, 8))
    assert (work.operator, work.bytes_moved) == ("add", 4 * (32 + 8 + 32))


def test_what_is_overwritten_is_not_read_and_a_lookup_reads_what_it_takes():
    target, source, table = torch.ones(8), torch.ones(8), torch.ones(1000, 4)
    (copied,) = booked(lambda: target.copy_(source))
    assert copied.bytes_moved == 4 * 16
    (looked_up,) = booked(lambda: torch.nn.functional.embedding(torch.tensor([1, 2]), table))
    assert looked_up.bytes_moved == 2 * 4 * 8 + 2 * 8


def test_a_list_operator_in_place_writes_its_first_operands():
    numbers = [torch.ones(8), torch.ones(4)]
    (scaled,) = booked(lambda: torch._foreach_mul_(numbers, 2.0))
    assert (scaled.operator, scaled.bytes_moved) == ("_foreach_mul_", 2 * 4 * 12)


def test_causal_attention_computes_half():
    query = torch.ones(1, 2, 16, 8)
    attend = torch.nn.functional.scaled_dot_product_attention
    (whole,), (half,) = (
        booked(lambda: attend(query, query, query)),
        booked(lambda: attend(query, query, query, is_causal=True)),
    )
    assert whole.flops == 2 * half.flops > 0


@pytest.mark.parametrize(
    ("name", "pattern"), [("layers.3.mlp", "layers.*.mlp"), ("2", "*"), ("conv2d.a1", "conv2d.a1")]
)
def test_the_number_of_a_block_is_a_star(name, pattern):
    assert starred(name) == pattern


@pytest.mark.sweep
@pytest.mark.parametrize("compiled", ["off", "blocks", "whole"])
def test_a_few_blocks_tell_the_work_of_all(compiled):
    recipe = load_recipe(
        "gpt",
        [
            f"compile={compiled}",
            "layers=6",
            "width=16",
            "heads=2",
            "context=16",
            "global_batch_tokens=64",
            "micro_batch_size=2",
            "precision=bf16-mixed",
        ],
    )
    with Tracing(recipe, work=True) as tracing:
        all_run = tracing.traced()
    with Tracing(recipe, work=True) as tracing:
        repeats = find_repeats(tracing.model, fewest=6)
        assert repeats
        few_run = run_few(tracing, repeats)
    assert set(all_run.steady.work) == set(few_run.steady.work)
    assert (compiled == "off") == all(work.operator != "fused" for work in all_run.steady.work)
    assert {"forward", "backward", "update"} <= {work.phase for work in all_run.steady.work}
    total = sum(work.calls * work.flops for work in all_run.steady.work)
    assert 0 < total <= all_run.steady.tally.total("flops")
