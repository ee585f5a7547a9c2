from decimal import Decimal, localcontext

import numpy as np
import pytest

from pdegen.numerics.spectral import Step

pytestmark = pytest.mark.usefixtures("shapes")


def exact_coefficients(z, h):
    """Cox and Matthews' (26)-(29) with 120 digits, in which the cancellation near 0 is harmless."""
    with localcontext() as context:
        context.prec = 120
        z, h = Decimal(z), Decimal(h)
        e, half = z.exp(), (z / 2).exp()
        return {
            "half": float(half),
            "full": float(e),
            "q": float(h * (half - 1) / z),
            "f1": float(h * (-4 - z + e * (4 - 3 * z + z**2)) / z**3),
            "f2": float(2 * h * (2 + z + e * (z - 2)) / z**3),
            "f3": float(h * (-4 - 3 * z - z**2 + e * (4 - z)) / z**3),
        }


@pytest.mark.parametrize("z", [-1e-14, -1e-7, -1e-3, -0.1, -1.0, -3.7, -30.0, -1e4, 0.5])
def test_the_coefficients_are_those_of_cox_and_matthews(z):
    h = 0.125  # a power of two: z/h is exact
    step = Step.of(np.array([z / h]), h)
    for name, expected in exact_coefficients(z, h).items():
        # round-off of the mean over the circle, where the terms are of size 10 at most
        assert getattr(step, name)[0] == pytest.approx(expected, rel=1e-12, abs=2e-15), name


def test_the_coefficients_at_zero_are_those_of_the_classical_method():
    step = Step.of(np.zeros(1), 0.5)
    assert step.half[0] == step.full[0] == 1
    values = [step.q[0], step.f1[0], step.f2[0], step.f3[0]]
    np.testing.assert_allclose(values, np.array([1 / 2, 1 / 6, 1 / 3, 1 / 6]) * 0.5, rtol=1e-14)


def bernoulli(steps, rate=4.0, start=1.5, time=1.0):
    """v' = -rate v + v² at the time, and the exact value: 1/v solves a linear equation."""
    step = Step.of(np.array([-rate]), time / steps)
    v = np.array([[start + 0j]])
    for _ in range(steps):
        v = step(v, np.square)
    exact = 1 / ((1 / start - 1 / rate) * np.exp(rate * time) + 1 / rate)
    return abs(complex(v[0, 0]) - exact)


def test_the_order_is_four():
    errors = [bernoulli(steps) for steps in (20, 40, 80)]
    orders = np.log2(np.array(errors[:-1]) / errors[1:])
    # the next term of the error is of relative size h: 1/40 here
    np.testing.assert_allclose(orders, 4, atol=0.1)
