"""Operators that train to the same bits every time on a GPU, as the documentation lists them.

There is none here: the operations of a step are looked at, as the path of other devices has them.
"""

import re
from pathlib import Path

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from operators.testing.checks import functions, points
from pipelines.config.declared import MODELS
from tests.operators.cases import ALL, CASES, FIRST, made
from tests.operators.cuda_rules import autocast_of_cuda, in_half

# CUDA kernels that add in no fixed order, by the reason that the page has; from PyTorch's page of
# torch.use_deterministic_algorithms, and cuDNN's and the fused attention's for their gradients
REASONS = {
    "convolution": r"convolution_backward",
    "attention": r"_scaled_dot_product_\w+_backward",
    "resampling": r"_?upsample_\w+_backward|grid_sampler_\w+_backward",
    "padding": r"(reflection|replication)_pad\w+_backward",
    "sums by index": r"index_add_?|scatter_add_?|scatter_reduce_?|cumsum|put_?",
    "pooling": r"(adaptive_avg|avg|max)_pool(2d|3d)_backward|_adaptive_avg_pool\w+_backward",
}


class Names(TorchDispatchMode):
    """Notes the names of operations."""

    def __init__(self):
        super().__init__()
        self.found = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.found.add(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


def reasons(label, dim):
    """Why a step of a case may have other bits the next time."""
    model = made(label, dim, torch.float32).train()
    a, x = functions(dim, dtype=torch.float32), points(dim, dtype=torch.float32)
    with autocast_of_cuda(), Names() as names, in_half():  # not the path of the processor
        loss = model(a, x).float().square().mean()
    with names:
        loss.backward()
    return {
        why for why, kernels in REASONS.items()
        if any(re.fullmatch(kernels, name) for name in names.found)
    }  # fmt: skip


def documented():
    """The rows of the table: reasons by operator."""
    page = (Path(__file__).parents[2] / "docs/how-to/gpus.md").read_text("utf-8")
    rows = re.findall(r"^\| ([a-z ]+) \| ((?:`[a-z0-9-]+`(?:, )?)+) \|$", page, re.MULTILINE)
    assert {why for why, _ in rows} <= set(REASONS)
    return {why: set(re.findall(r"`([a-z0-9-]+)`", names)) for why, names in rows}


@pytest.mark.usefixtures("unchecked")
def test_the_page_lists_the_operators_whose_steps_add_in_no_fixed_order():
    found = {}
    for label, dim in ALL:
        if (label, dim) in FIRST and not CASES[label].foreign:
            for why in reasons(label, dim):
                found.setdefault(why, set()).add(CASES[label].name)
    assert found.keys() == documented().keys()
    for why, names in documented().items():
        assert names <= MODELS.keys()
        assert found[why] <= names, why


@pytest.mark.slow  # all cases in all dimensions
@pytest.mark.usefixtures("unchecked")
def test_the_page_is_right_for_every_case():
    found = {}
    for label, dim in ALL:
        if not CASES[label].foreign:
            for why in reasons(label, dim):
                found.setdefault(why, set()).add(CASES[label].name)
    assert found == documented()
