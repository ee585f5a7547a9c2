"""Attention through landmarks against softmax attention and its dense formula."""

import math

import pytest
import torch

from operators.nn.attention import (
    NystromAttention,
    nystrom,
    pseudo_inverse,
    segment_means,
    through,
    through_landmarks,
)


@pytest.fixture
def qkv():
    torch.manual_seed(0)
    return tuple(torch.randn(2, 3, 12, 5, dtype=torch.float64) for _ in range(3))


def test_pseudo_inverse_does_not_depend_on_the_other_matrices():
    torch.manual_seed(0)
    a = torch.randn(2, 3, 6, 6, dtype=torch.float64).softmax(-1)
    torch.testing.assert_close(pseudo_inverse(a, 2)[:1], pseudo_inverse(a[:1], 2))
    torch.testing.assert_close(pseudo_inverse(a, 2)[:, 1:2], pseudo_inverse(a[:, 1:2], 2))


def test_one_step_of_the_pseudo_inverse_is_its_polynomial():
    """For a number s, from z = s/s² = 1/s, which every step keeps; for a diagonal, term by term."""
    s = torch.tensor([0.5, 1.0], dtype=torch.float64)
    z = s / (1.0 * 1.0)
    expected = z / 4 * (13 - s * z * (15 - s * z * (7 - s * z)))
    torch.testing.assert_close(pseudo_inverse(s.diag()[None, None], 1)[0, 0], expected.diag())


def test_with_every_point_a_landmark_it_is_softmax_attention(qkv):
    q, k, v = qkv
    expected = torch.softmax(q @ k.mT / math.sqrt(5), -1) @ v
    torch.testing.assert_close(through_landmarks(q, k, v, q, k, 40), expected, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(nystrom(q, k, v, landmarks=12), expected)


def test_equals_its_dense_formula(qkv):
    q, k, v = qkv
    q_m, k_m = (t.unflatten(-2, (4, 3)).mean(-2) for t in (q, k))

    def weights(a, b):
        return torch.softmax(a @ b.mT / math.sqrt(5), -1)

    inverse = torch.linalg.pinv(weights(q_m, k_m))
    expected = weights(q, k_m) @ inverse @ weights(q_m, k) @ v
    torch.testing.assert_close(
        nystrom(q, k, v, landmarks=4, iterations=30), expected, rtol=1e-6, atol=1e-6
    )


def test_segments_are_neighbours_and_of_sizes_that_differ_by_one_at_most():
    u = torch.arange(11, dtype=torch.float64)[None, None, :, None]
    assert segment_means(u, 11).flatten().tolist() == list(range(11))
    # 0 1 2 | 3 4 5 | 6 7 8 | 9 10
    torch.testing.assert_close(
        segment_means(u, 4).flatten(), torch.tensor([1.0, 4.0, 7.0, 9.5], dtype=torch.float64)
    )


def test_stores_no_matrix_of_all_points():
    n = 512
    q, k, v = (torch.randn(1, 1, n, 8, requires_grad=True) for _ in range(3))
    sizes = []

    def stored(t):
        sizes.append(t.numel())
        return t

    with torch.autograd.graph.saved_tensors_hooks(stored, lambda t: t):
        nystrom(q, k, v, landmarks=32)
    assert max(sizes) <= 32 * n


def test_module_is_attention_and_a_convolution_of_the_values():
    torch.manual_seed(0)
    module = NystromAttention(8, 2, landmarks=4, kernel=3).double()
    u = torch.randn(2, 12, 8, dtype=torch.float64)
    q, k, v = (
        (u @ w.T).unflatten(-1, (2, 4)).transpose(1, 2) for w in module.project.weight.chunk(3)
    )
    y = nystrom(q, k, v, landmarks=4)
    w = module.convolution.weight[:, 0, :, 0]  # (h, 3)
    padded = torch.nn.functional.pad(v, (0, 0, 1, 1))
    for h in range(2):
        for j in range(12):
            y[:, h, j] += sum(w[h, i] * padded[:, h, j + i] for i in range(3))
    expected = y.transpose(1, 2).flatten(2) @ module.out.weight.T + module.out.bias
    torch.testing.assert_close(module(u), expected)


def test_refuses_impossible_settings():
    with pytest.raises(ValueError, match="heads must divide width, got heads=3, width=8"):
        NystromAttention(8, 3)
    for make in (through, lambda m: NystromAttention(8, 2, m)):
        with pytest.raises(ValueError, match="landmarks must be at least 1, got 0"):
            make(0)
    with pytest.raises(ValueError, match="kernel must be odd or 0, got 4"):
        NystromAttention(8, 2, kernel=4)
