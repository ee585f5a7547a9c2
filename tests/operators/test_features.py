"""Attention by random features against kernels, formulas and statistics."""

import math

import pytest
import torch

from operators.nn.attention import (
    RandomFeatureAttention,
    gaussian_frequencies,
    log_positive_features,
    orthogonal_frequencies,
    random_features,
    trigonometric_features,
)

pytestmark = pytest.mark.usefixtures("shapes")

CPU = torch.device("cpu")


@pytest.fixture
def qkv():
    torch.manual_seed(0)
    return tuple(0.7 * torch.randn(2, 3, 6, 5, dtype=torch.float64) for _ in range(3))


def attention(kernel, d=5, **settings):
    torch.manual_seed(1)
    return RandomFeatureAttention(d, kernel, **settings).double().eval()


def ratio(weights, v):
    """Σ_j w_ij v_j / Σ_j w_ij, by a loop over the points i."""
    rows = [(w[..., None] * v).sum(-2) / w.sum(-1, keepdim=True) for w in weights.unbind(-2)]
    return torch.stack(rows, -2)


def test_favor_equals_its_formula_token_by_token(qkv):
    q, k, v = qkv
    module = attention("softmax", features=8)
    w = module.frequencies

    def features(x):
        x = x / 5**0.25
        square = x.square().sum(-1, keepdim=True)
        return torch.cat([torch.exp(s * (x @ w) - square / 2) / math.sqrt(8) for s in (1, -1)], -1)

    weights = torch.einsum("bhif,bhjf->bhij", features(q), features(k))
    torch.testing.assert_close(module(q, k, v), ratio(weights, v))


def test_rfa_equals_its_formula_token_by_token(qkv):
    q, k, v = qkv
    module = attention("gaussian", features=40)
    difference = (q[..., :, None, :] - k[..., None, :, :]) / 5**0.25
    weights = torch.cos(difference @ module.frequencies).mean(-1)
    torch.testing.assert_close(module(q, k, v), ratio(weights, v))


@pytest.mark.parametrize("kernel", ["gaussian", "softmax"])
def test_masked_sources_count_nowhere(kernel, qkv):
    q, k, v = qkv
    module = attention(kernel, features=40)
    mask = torch.tensor([True, True, False, True, False, True])
    expected = module(q, k[..., mask, :], v[..., mask, :])
    found = module(q, k, v, mask=mask[:, None].expand(2, 1, 6, 1))
    torch.testing.assert_close(found, expected)


def test_mean_products_of_positive_features_tend_to_the_softmax_kernel():
    torch.manual_seed(0)
    x, y = 0.5 * torch.randn(2, 1, 1, 20, 4, dtype=torch.float64)
    w = orthogonal_frequencies(4, 400_000, CPU).double()
    scale = math.sqrt(2 * w.shape[1])
    phi = [log_positive_features(t @ w, t).exp() / scale for t in (x, y)]
    # a relative deviation of √((e^|x+y|² - 1)/m) or less, some 1e-2 here
    torch.testing.assert_close(phi[0] @ phi[1].mT, torch.exp(x @ y.mT), rtol=0.05, atol=0.0)


def test_products_of_trigonometric_features_tend_to_the_gaussian_kernel():
    torch.manual_seed(0)
    x, y = torch.randn(2, 1, 1, 20, 4, dtype=torch.float64)
    w = gaussian_frequencies(4, 400_000, CPU).double()
    phi = [trigonometric_features(t @ w) for t in (x, y)]
    # a deviation of m^(-1/2) = 1.6e-3 or less, of 400 values
    torch.testing.assert_close(
        phi[0] @ phi[1].mT, torch.exp(-torch.cdist(x, y).square() / 2), rtol=0.0, atol=8e-3
    )


def test_orthogonal_frequencies_are_so_in_blocks_and_as_long_as_gaussian_ones():
    torch.manual_seed(0)
    w = orthogonal_frequencies(6, 60_000, CPU)
    blocks = w.T.reshape(-1, 6, 6)
    gram = blocks @ blocks.mT
    off = gram - gram.diagonal(dim1=1, dim2=2).diag_embed()
    assert float(off.abs().max()) < 1e-4
    square = w.square().sum(0)  # χ²(6): mean 6, variance 12
    assert float(square.mean()) == pytest.approx(6, abs=0.06)
    assert float(square.var()) == pytest.approx(12, rel=0.05)
    # of each component: standard normal, up to the sign
    assert w.square().mean(1).tolist() == pytest.approx([1.0] * 6, abs=0.04)


def test_favor_neither_overflows_nor_vanishes_in_float32():
    torch.manual_seed(2)
    q, k, v = (t.requires_grad_() for t in 60 * torch.randn(3, 1, 1, 50, 16))
    module = RandomFeatureAttention(16, "softmax").eval()
    u = module(q, k, v)
    exact = module.double()(*(t.double() for t in (q, k, v)))
    # values of size 100; exponents of size 10⁴, which float32 knows to 10⁻³
    torch.testing.assert_close(u.double(), exact, rtol=1e-2, atol=1.0)
    for gradient in torch.autograd.grad(u.sum(), (q, k, v)):
        assert gradient.isfinite().all()


def test_sums_of_the_gaussian_kernel_that_vanish_divide_by_eps():
    module = RandomFeatureAttention(2, "gaussian", features=2).eval()
    with torch.no_grad():
        module.frequencies.copy_(torch.tensor([[math.pi], [0.0]]))
    q, v = torch.zeros(1, 1, 2, 2), torch.ones(1, 1, 2, 2)
    k = torch.tensor([[0.0, 0.0], [2**0.25, 0.0]])[None, None]  # cosines 1 and -1
    assert module(q, k, v).isfinite().all()


@pytest.mark.parametrize("kernel", ["gaussian", "softmax"])
def test_frequencies_are_drawn_in_training_alone(kernel, qkv):
    module = attention(kernel)
    before = module.frequencies.clone()
    first = module(*qkv)
    assert torch.equal(module(*qkv), first)
    assert torch.equal(module.frequencies, before)
    trained = module.train()(*qkv)
    assert not torch.equal(module.frequencies, before)
    assert torch.equal(module.eval()(*qkv), trained)  # with those of the last step


def test_gradients_of_two_passes_are_those_of_their_own_draws(qkv):
    q, k, v = (t.requires_grad_() for t in qkv)
    module = attention("softmax").train()
    torch.manual_seed(3)
    both = torch.autograd.grad(module(q, k, v).sum() + module(q, k, v).sum(), q)[0]
    torch.manual_seed(3)
    apart = sum(torch.autograd.grad(module(q, k, v).sum(), q)[0] for _ in range(2))
    torch.testing.assert_close(both, apart)


def test_refuses_fewer_than_two_features():
    with pytest.raises(ValueError, match="number of random features must be at least 2, got 1"):
        random_features("softmax", features=1).make(4)
