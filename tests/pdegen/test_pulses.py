"""Square pulses on the circle: exact averages, wherever the ends of a pulse lie."""

import numpy as np
import pytest

from pdegen.equations.pulses.problem import Pulse, Transport
from tests.pdegen.small import problem, samples
from tests.pdegen.test_checks import findings

RNG = np.random.default_rng(0)
PULSE = Pulse(RNG.uniform(0.2, 0.8, 50), RNG.uniform(0.05, 0.3, 50), RNG.uniform(0, 1, 50))


def test_content_is_conserved_to_round_off():
    content = Transport(1024, 0.7)(PULSE, 0.9).mean(axis=1)
    assert abs(content - PULSE.height * PULSE.width).max() < 1e-14


def test_averages_over_coarser_cells_are_averages_of_averages():
    fine = PULSE.averages(1024, 0.123).reshape(50, 64, 16).mean(axis=2)
    np.testing.assert_allclose(PULSE.averages(64, 0.123), fine, atol=1e-13)


@pytest.mark.parametrize(
    ("name", "changed", "message"),
    [
        ("z", lambda z: z / 2, "statistics of the uniform numbers"),
        ("z", lambda z: z[[0, *range(199)]], "is the same as sample 0"),
        ("a", lambda a: np.roll(a, 1, axis=1), "the distance from the averages of the pulse"),
        ("u", lambda u: np.roll(u, 1, axis=1), "the distance from the averages of the pulse"),
        ("u", lambda u: u * np.float32(1.00001), "the distance of the means"),
    ],
)
def test_the_law_notices_changed_values(name, changed, message):
    stored = samples("pulses-quick")
    report = findings(problem("pulses-quick").checks(), {**stored, name: changed(stored[name])})
    assert any(message in finding.message for finding in report)
