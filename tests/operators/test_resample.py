"""Interpolation between grids: exact for bilinear functions of the true coordinates."""

import pytest
import torch

from benchmarks.launches import counted
from operators.nn import resample
from operators.nn.resample import interpolated, interpolation, resized, resized_grid

pytestmark = pytest.mark.usefixtures("shapes")


def square(first, second):
    return torch.stack(torch.meshgrid(first, second, indexing="ij"), -1)


def nodes(n):
    return torch.linspace(0, 1, n, dtype=torch.float64)


def cells(n):
    return (torch.arange(n, dtype=torch.float64) + 0.5) / n


def bilinear(x):
    s, t = x.unbind(-1)
    return torch.stack([1 + 2 * s - t, 3 * s * t], -1)[None]


@pytest.mark.parametrize(
    ("x", "y"),
    [
        (square(nodes(9), nodes(7)), square(cells(4), cells(12))),
        (square(cells(31)[::3], cells(31)[::2]), square(cells(9), cells(9))),
    ],
)
def test_by_coordinates_it_is_exact_for_bilinear_functions(x, y):
    torch.testing.assert_close(interpolated(bilinear(x), x, y), bilinear(y))


def test_by_indices_it_is_exact_at_the_resized_coordinates():
    x = square(cells(21)[::2], cells(8))
    y = resized_grid(x, 5, 13)
    assert torch.equal(y[[0, -1]][:, [0, -1]], x[[0, -1]][:, [0, -1]])
    torch.testing.assert_close(resized(bilinear(x), 5, 13), bilinear(y))


def test_by_indices_equals_by_coordinates_between_common_ends():
    torch.manual_seed(0)
    x, y = square(nodes(11), nodes(9)), square(nodes(6), nodes(17))
    u = torch.randn(3, 11, 9, 4, dtype=torch.float64)
    torch.testing.assert_close(interpolated(u, x, y), resized(u, 6, 17))


def test_continues_as_a_constant_beyond_the_ends():
    matrix = interpolation(cells(4), nodes(5))
    assert matrix[0].tolist() == [1, 0, 0, 0]
    assert matrix[-1].tolist() == [0, 0, 0, 1]
    torch.testing.assert_close(matrix.sum(1), torch.ones(5, dtype=torch.float64))


def test_the_same_size_is_the_same_tensor():
    u = torch.randn(1, 4, 5, 2)
    assert resized(u, 4, 5) is u


@pytest.mark.parametrize(("grid", "sizes"), [((11, 9), (6, 17)), ((7, 7), (3, 7)), ((4, 1), (9, 1)),
                                             ((5, 6), (1, 13)), ((141, 6), (43, 5))])  # fmt: skip
def test_the_products_of_a_gpu_are_the_interpolation_of_the_processor(grid, sizes):
    """Values and gradients."""
    torch.manual_seed(0)
    u = torch.randn(3, *grid, 4, dtype=torch.float64, requires_grad=True)
    direction = torch.randn(3, *sizes, 4, dtype=torch.float64)
    found = []
    for act in (resample._stretched_by_products, lambda u, sizes: resized(u, *sizes)):
        v = act(u, sizes)
        found.append((v.detach(), *torch.autograd.grad((v * direction).sum(), u)))
    for ours, plain in zip(*found, strict=True):
        torch.testing.assert_close(ours, plain, rtol=1e-12, atol=1e-12)


def test_another_device_has_no_gradient_that_adds_in_any_order():
    with counted() as work:
        u = torch.empty(2, 21, 21, 3, device="meta", requires_grad=True)
        (2 * resized(u, 8, 30)).sum().backward()
    assert not [name for name in work.launches if "upsample" in name]
    assert work.launches["bmm"] == 4
