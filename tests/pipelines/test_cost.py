"""Costs of training steps."""

import pytest
import torch
from torch import nn

from operators.nn import affine, fused
from pipelines.config.experiment import load_experiment
from pipelines.config.models import parse_model
from pipelines.studies.cost import random_pairs, step_flops


@pytest.mark.parametrize("attention", ["galerkin", "softmax", "none"])
@pytest.mark.parametrize("normalization", ["head", "layer"])
def test_operations_written_out_are_those_of_the_formula(monkeypatch, attention, normalization):
    """Where gradients are written out for the processor, products add to their results."""
    settings = {"attention": attention, "normalization": normalization, "width": 32, "modes": 8}
    model = parse_model({"name": "galerkin-transformer", **settings}).build(1, 1, 1).train()
    x, a = torch.arange(64)[:, None] / 64, torch.randn(4, 64, 1)

    def step():
        model(a, x).square().mean().backward()

    fast = step_flops(step)
    for module in (affine, fused):
        monkeypatch.setattr(module, "on_processor", lambda u: False)
    # written out, the products with the one or two coordinates are left to sums
    assert fast == pytest.approx(step_flops(step), rel=0.02)


def test_products_that_add_to_their_result_are_counted():
    a, b, c = torch.ones(2, 3), torch.ones(3, 4), torch.zeros(2, 4)
    assert step_flops(lambda: c.addmm_(a, b)) == 2 * 2 * 3 * 4
    a, b, c = torch.ones(5, 2, 3), torch.ones(5, 3, 4), torch.zeros(5, 2, 4)
    assert step_flops(lambda: c.baddbmm_(a, b)) == 5 * 2 * 2 * 3 * 4


def test_products_that_a_relu_follows_are_counted():
    """They are a single kernel of GPUs; the device meta has their shapes only."""
    mlp = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 8)).to("meta")
    u = torch.ones(5, 16, 8, device="meta", requires_grad=True)
    step = step_flops(lambda: fused.residual_mlp(u, mlp).sum().backward())
    assert step == 3 * 2 * (2 * 5 * 16 * 8 * 32)


def test_complex_products_count_as_four_real_ones():
    a, b = torch.ones(5, 2, 3, dtype=torch.cfloat), torch.ones(5, 3, 4, dtype=torch.cfloat)
    assert step_flops(lambda: a @ b) == 4 * step_flops(lambda: a.real @ b.real)
    assert step_flops(lambda: a[0] @ b[0]) == 4 * (2 * 2 * 3 * 4)
    c = torch.zeros(5, 2, 4, dtype=torch.cfloat)
    assert step_flops(lambda: torch.addmm(c[0], a[0], b[0])) == 4 * (2 * 2 * 3 * 4)
    assert step_flops(lambda: torch.baddbmm(c, a, b)) == 4 * (5 * 2 * 2 * 3 * 4)


@pytest.mark.parametrize("transposed", [False, True])
def test_products_that_are_operations_of_this_package_are_counted(transposed):
    """Where a GPU has them, or autocast; with their gradients, each as much as the product."""
    f, g = torch.ones(5, 2, 3, requires_grad=True), torch.ones(5, 3, 4, requires_grad=True)
    step = step_flops(lambda: torch.ops.operators.exact_bmm(f, g).sum().backward())
    assert step == 3 * (5 * 2 * 2 * 3 * 4)
    u = torch.ones(5, 8 if transposed else 16, 3, requires_grad=True)  # 4 modes of 16 points
    words = "spectrum", 16, 4, transposed
    step = step_flops(lambda: torch.ops.operators.transformed(u, *words).sum().backward())
    assert step == 2 * (5 * 2 * 8 * 16 * 3)


def test_random_functions_have_the_variables_of_the_task():
    experiment = load_experiment("pipe-transolver").with_overrides(
        {"task.targets": ["u", "v", "p"]}
    )
    assert random_pairs(experiment, torch.device("cpu")).channels == (2, 3)
