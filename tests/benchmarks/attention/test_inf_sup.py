"""The inf-sup constant against angles that are known, and against a search over functions."""

import numpy as np
import pytest
from scipy.optimize import minimize

from benchmarks.attention import inf_sup
from benchmarks.attention.__main__ import main


def test_the_constant_of_waves_is_the_cosine_of_their_angle_for_every_n():
    for n in (64, 1000):
        q, k = inf_sup.spectral(n)
        assert inf_sup.inf_sup(q, k) == pytest.approx(np.cos(0.5), abs=1e-12)
        mixing = np.random.default_rng(0).standard_normal((k.shape[1],) * 2)
        assert inf_sup.inf_sup(q, k @ mixing) == pytest.approx(np.cos(0.5), abs=1e-9)


def test_it_is_the_least_of_the_largest_values_over_functions():
    """For one q the maximum over k is the norm of the projection of q on the span of the keys."""
    rng = np.random.default_rng(1)
    q, k = rng.standard_normal((40, 3)), rng.standard_normal((40, 6))
    basis = np.linalg.qr(k)[0]

    def largest(c):
        return np.linalg.norm(basis.T @ q @ c) / np.linalg.norm(q @ c)

    found = min(minimize(largest, rng.standard_normal(3)).fun for _ in range(5))
    assert inf_sup.inf_sup(q, k) == pytest.approx(found, rel=1e-6)


def test_the_bound_of_the_lemma_is_below_it():
    rng = np.random.default_rng(2)
    for _ in range(20):
        q, k = rng.standard_normal((50, 3)), rng.standard_normal((50, 5))
        assert 0 < inf_sup.lower_bound(q, k) <= inf_sup.inf_sup(q, k) + 1e-12


@pytest.mark.parametrize("name", ["waves", "hats", "heads"])
def test_softmax_makes_the_constant_fall_like_one_over_n(name):
    sizes = (128, 256, 512)
    spaces = inf_sup.SPACES[name]()
    found = [inf_sup.constants(*spaces(n)) for n in sizes]
    for attribute, expected in (("exact", 0), ("softmax", 0), ("softmax_of_keys", -1)):
        exponent = inf_sup.rate([getattr(c, attribute) for c in found], sizes)
        assert exponent == pytest.approx(expected, abs=0.15), attribute


def test_the_command_prints_a_table_and_writes_a_picture(tmp_path, capsys):
    main(["inf-sup", "--quick", "--picture", str(tmp_path / "p.png")])
    out = capsys.readouterr().out
    assert out.count("exponent of n") == 3
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")
