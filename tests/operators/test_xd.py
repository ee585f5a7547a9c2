"""XD against its released form with matrices written out, in float64."""

import pytest
import torch
from torch.nn.functional import conv1d, conv2d, pad
from torch.utils._python_dispatch import TorchDispatchMode

from operators.models import xd
from operators.models.xd import XD, Butterfly, XDConv
from operators.nn import encoder
from tests.operators.drawn import points, shaken
from tests.oracles.plain_xd import bit_reversed, levels, matrix


def small(**settings):
    """A model in float64 with weights of order one, so that every term counts."""
    torch.manual_seed(0)
    return shaken(XD(**{"dim": 1, "width": 3, "depth": 2, "kernel": 3, "size": 8, "head_width": 6}
               | settings))  # fmt: skip


@pytest.mark.parametrize("n", [2, 8, 32])
def test_butterflies_start_as_the_fourier_transform_and_its_inverse(n):
    unit = 0.5**0.5
    direct, inverse = (Butterfly(n, i, unit).double() for i in (False, True))
    dft = torch.fft.fft(torch.eye(n, dtype=torch.complex128), norm="ortho")
    order = bit_reversed(n)
    # the blocks are kept in single precision
    torch.testing.assert_close(matrix(direct), dft[order], rtol=0, atol=1e-6)
    torch.testing.assert_close(matrix(inverse), dft.mH[:, order], rtol=0, atol=1e-6)


@pytest.mark.parametrize("inverse", [True, False])
def test_butterflies_are_products_of_sparse_matrices(inverse):
    butterfly = Butterfly(16, inverse, 1.0).double()
    torch.nn.init.normal_(butterfly.blocks)
    found = levels(butterfly)
    assert len(found) == 4  # log2(16)
    for level in found:
        assert ((level != 0).sum(0) == 2).all()
        assert ((level != 0).sum(1) == 2).all()
    for count in (3, 40):  # level by level, and by the matrix
        u = torch.randn(count, 16, dtype=torch.complex128)
        torch.testing.assert_close(butterfly(u), u @ matrix(butterfly).T)


@pytest.mark.parametrize("dim", [1, 2])
@pytest.mark.parametrize("kernel", [1, 3, 5])
def test_starts_as_the_circular_convolution(dim, kernel):
    torch.manual_seed(0)
    operation, u = XDConv(dim, 3, 16, kernel), torch.randn(2, 3, *[16] * dim)
    around = pad(u, [kernel // 2] * (2 * dim), mode="circular")
    expected = (conv1d if dim == 1 else conv2d)(around, operation.weight)
    found = operation(u.movedim(1, -1)).movedim(-1, 1)
    assert float((found - expected).detach().norm() / expected.detach().norm()) < 1e-5


def test_shorter_grids_start_as_the_convolution_with_zeros():
    operation, u = XDConv(2, 3, 16, 5), torch.randn(2, 3, 11, 9)
    expected = conv2d(u, operation.weight, padding=2)
    found = operation(u.movedim(1, -1)).movedim(-1, 1)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


class ComplexProducts(TorchDispatchMode):
    """Counts products of complex numbers: exact ones, and those in the precision of others."""

    def __init__(self):
        super().__init__()
        self.exact = self.others = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        if any(isinstance(v, torch.Tensor) and v.is_complex() for v in args):
            self.exact += name == "exact_bmm"
            self.others += name in ("mm", "bmm", "addmm", "baddbmm")
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("dim", [1, 2])
def test_on_a_gpu_complex_products_stay_in_float32(monkeypatch, dim):
    """In TF32 transforms of both directions would keep three digits."""
    model, a = small(dim=dim), torch.randn(40, *[8] * dim, 1, dtype=torch.float64)

    def gradient():
        model.zero_grad()
        out = model(a, points(*[8] * dim))
        out.square().sum().backward()
        return out.detach(), torch.cat([p.grad.flatten() for p in model.parameters()])

    u, expected = gradient()
    for module in (encoder, xd):
        monkeypatch.setattr(module, "on_processor", lambda v: False)  # as on a GPU
    with ComplexProducts() as products:
        v, found = gradient()
    # in each of two layers: transforms of u and of the result along each axis, and the sum over
    # channels; the gradient has twice as many, but for kernels whose transform goes level by level
    assert products.exact >= 2 * (2 * dim + 1) * 3
    assert products.others == 0
    torch.testing.assert_close(v, u, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10 * float(expected.norm()))
