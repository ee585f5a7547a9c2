"""Counting what steps launch on a GPU, without one; and how much that is."""

import pytest
import torch
from torch import nn

from benchmarks.kernels import LIMITS, of_experiment, rows_of, table
from benchmarks.launches import counted

META = torch.device("meta")


def launches(act, *shapes):
    values = [torch.empty(shape, device=META) for shape in shapes]
    with counted() as work:
        act(*values)
    return work


@pytest.mark.parametrize(
    ("act", "shapes", "kernels"),
    [
        (lambda u: u.T[None].expand(2, -1, -1)[:, 1:].detach(), [(4, 3)], 0),
        (lambda u, v: u + v, [(4, 3), (3,)], 1),
        (lambda u: torch.empty_like(u), [(4, 3)], 0),
        (lambda u: u.T.contiguous(), [(4, 3)], 1),
        (lambda u, w, b: nn.functional.linear(u, w, b), [(2, 8, 4), (3, 4), (3,)], 1),
        (lambda c, u, v: torch.baddbmm(c, u, v), [(2, 4, 5), (2, 4, 3), (2, 3, 5)], 2),
        (lambda c, u, v: c.baddbmm_(u, v), [(2, 4, 5), (2, 4, 3), (2, 3, 5)], 1),
        (lambda u, v: u[..., ::2] @ v, [(4, 6), (3, 5)], 2),  # columns that no product takes
        (lambda u: nn.functional.dropout(u, 0.1), [(4, 3)], 1),
        (lambda q: nn.functional.scaled_dot_product_attention(q, q, q), [(2, 2, 8, 8)], 1),
    ],
)
def test_an_operation_counts_as_the_rule_says(act, shapes, kernels):
    assert launches(act, *shapes).kernels == kernels


CHUNKS = 320 * 65_536


@pytest.mark.parametrize(
    ("count", "size", "kernels"),
    [(48, 10, 1), (49, 10, 2), (97, 10, 3), (2, CHUNKS, 2), (1, CHUNKS, 1), (1, CHUNKS + 1, 2)],
)
def test_operations_on_lists_are_cut_as_pytorch_cuts_them(count, size, kernels):
    """48 tensors of three lists to a launch, 320 chunks of 65,536 numbers."""
    lists = [[torch.empty(size, device=META) for _ in range(count)] for _ in range(3)]
    with counted() as work:
        torch._foreach_addcmul_(*lists, 0.5)
    assert work.kernels == kernels


def test_bytes_and_operations_are_those_of_the_shapes():
    work = launches(lambda u, v: u @ v, (4, 6), (6, 5))
    assert (work.read, work.written, work.flops) == (4 * (24 + 30), 4 * 20, 2 * 4 * 6 * 5)
    work = launches(lambda u: u.expand(10, 3) + 1, (3,))
    assert (work.read, work.written) == (12, 120)  # an expanded dimension is read once


def test_a_step_of_the_published_galerkin_transformer_is_few_kernels():
    rows = rows_of("burgers-gt-8192", of_experiment("burgers-gt-8192"), before=2)
    row = rows["burgers-gt-8192"]
    assert row["kernels"] <= LIMITS["burgers-gt-8192"] == 400
    assert row["read, GB"] + row["written, GB"] < 5
    assert row["GFLOP"] == pytest.approx(56.6, abs=0.5)
    assert "burgers-gt-8192" in table(rows)
