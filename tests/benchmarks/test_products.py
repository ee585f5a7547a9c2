"""Which products are found, what they cost by their shapes, and that they run alone as noted."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.products import alone, counted, products_of
from operators.models.galerkin import GalerkinTransformer
from operators.norms import RelativeL2
from operators.training.step import Acceleration

CPU = torch.device("cpu")
aten = torch.ops.aten


def trained(model: nn.Module, *inputs: torch.Tensor) -> None:
    model(*inputs).square().sum().backward()


def test_an_mlp_has_its_products_in_both_directions() -> None:
    b, d, h = 7, 5, 3
    model = nn.Sequential(nn.Linear(d, h), nn.ReLU(), nn.Linear(h, 1))
    found = products_of(lambda: trained(model, torch.randn(b, d)))
    # each map forward and for its weights, and the second for its input
    assert sum(p.flops for p in found) == 2 * (2 * b * d * h + 3 * b * h)
    assert len(found) == 5
    first = found[0]  # bias, input and weights are read once, the result is written
    assert first.bytes == 4 * (h + b * d + d * h + b * h)


def test_a_galerkin_transformer_has_what_pytorch_counts() -> None:
    model, loss = GalerkinTransformer(width=8, depth=2, feedforward=6, modes=3), RelativeL2()
    x, a = torch.arange(16)[:, None] / 16, torch.randn(2, 16, 1)

    def step() -> None:
        loss(model(a, x), a, a).backward()

    def in_place(c: Any, a: tuple[int, ...], b: tuple[int, ...], **words: Any) -> int:
        return 2 * math.prod(a) * b[-1]

    def by_vector(a: tuple[int, ...], b: tuple[int, ...], **words: Any) -> int:
        return 2 * math.prod(a)

    # PyTorch leaves them out
    mapping = {aten.addmm_: in_place, aten.baddbmm_: in_place, aten.mv: by_vector}
    with FlopCounterMode(display=False, custom_mapping=mapping) as counter:
        step()
    found = products_of(step)
    assert sum(p.flops for p in found) == counter.get_total_flops() > 0
    assert {p.function.overloadpacket for p in found} >= {aten.mm, aten.bmm, aten.baddbmm_}


def test_convolutions_count_with_the_gradients_that_are_asked_for() -> None:
    convolution = nn.Conv2d(2, 3, 3, padding=1, bias=False)
    forward, backward = products_of(lambda: trained(convolution, torch.randn(4, 2, 5, 6)))
    once = 2 * (4 * 3 * 5 * 6) * (2 * 9)
    assert (forward.flops, backward.flops) == (once, once)  # of the weights alone
    assert forward.convolves
    asked = torch.randn(4, 2, 5, 6, requires_grad=True)
    assert products_of(lambda: trained(convolution, asked))[1].flops == 2 * once


@pytest.mark.parametrize("graphed", [False, True])
def test_alone_are_the_same_products(graphed: bool) -> None:
    model = GalerkinTransformer(width=8, depth=1, feedforward=6, modes=3)
    x, a = torch.arange(16)[:, None] / 16, torch.randn(2, 16, 1)
    found = products_of(lambda: model(a, x).sum().backward())
    again = products_of(alone(found, CPU, Acceleration(graphed=graphed)))
    assert again == found


def test_what_is_written_is_not_read_by_another() -> None:
    """Sums in place would else grow from call to call without bound."""
    a = torch.eye(2)
    found = products_of(lambda: (a @ a, torch.zeros(2, 2).addmm_(a, a)))
    run = alone(found, CPU)
    for _ in range(200):
        run()
    assert [p.function.overloadpacket for p in found] == [aten.mm, aten.addmm_]
    assert [leaf.written for leaf in found[1].arguments[:3]] == [True, False, False]
    assert counted(found) == {"products": 2, "GFLOP": 0.0, "GB": 0.0}


def test_softmax_attention_counts_as_two_products_and_five() -> None:
    q, k, v = (torch.randn(2, 3, n, 4, requires_grad=True) for n in (5, 7, 7))

    def attention() -> None:
        nn.functional.scaled_dot_product_attention(q, k, v).sum().backward()

    found = products_of(attention)
    assert [p.flops for p in found] == [share * 2 * 2 * 3 * 5 * 7 * 4 for share in (2, 5)]
    alone(found, CPU)()
