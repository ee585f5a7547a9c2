"""Tolerances of frames against the equation's evolution of the frames before."""

from dataclasses import replace

import numpy as np
import pytest

from pdegen.checks.check import StoreChecks
from pdegen.checks.evolution import Evolution, EvolutionCheck
from pdegen.domains import PeriodicGrid
from pdegen.numerics.spectral import Torus
from tests.pdegen.test_checks import findings
from tests.pdegen.test_manipulated import problem, stored

N, GROWTH = 32, 0.5


def evolved(times, tolerance=0.0, n=N):
    """v' = v/2, as N(v)."""

    def terms(torus):
        return np.zeros((1, *torus.shape)), lambda v: GROWTH * v

    return Evolution(terms, 2, Torus((PeriodicGrid(n),), 1), 1, (0.0, *times), tolerance, False)


def grown(times, samples=3):
    """A wave, and what it grows to."""
    a = np.cos(2 * np.pi * np.outer(np.ones(samples), PeriodicGrid(N).x))
    u = np.stack([np.exp(GROWTH * t) * a for t in times], axis=1)
    values = {"a": a, "u": u, "error": np.full(samples, 1e-9)}
    return {name: value.astype(np.float32) for name, value in values.items()}


def law(told):
    return StoreChecks(tuple(told.checks()))


def test_a_pair_is_at_fault_beyond_its_limit_and_not_before():
    """The limit is 4 (the error, and 2⁻²⁴) of the frame, beside what runs differ by: some 1e-6."""
    told, values = evolved([1.0], tolerance=1e-3), grown([1.0])
    for error, factor, count in ((1e-9, 1 + 1e-6, 0), (1e-9, 1 + 1e-5, 2), (1e-3, 1.0038, 0),
                                 (1e-3, 1.0042, 2), (1.0, 1.0042, 2)):  # fmt: skip
        changed = {**values, "u": factor * values["u"], "error": np.full(3, error)}
        assert len(findings(law(told), changed)) == count


@pytest.mark.parametrize(("error", "count"), [((1e-9, 1e-3), 0), ((1e-3, 1e-9), 2)])
def test_a_pair_is_allowed_the_error_of_its_later_frame(error, count):
    values = grown([0.5, 1.0], 1)
    values["u"][0, 1] *= 1.002
    values["error"] = np.array([error])
    assert len(findings(law(evolved([0.5, 1.0], tolerance=1e-3)), values)) == count


def test_what_runs_differ_by_is_allowed_four_times():
    """e^(1/2) in steps of which twice as many change it by a known number."""
    (check, _) = evolved([1.0]).checks()
    assert isinstance(check, EvolutionCheck)
    values = grown([1.0], 1)
    v = evolved([1.0]).torus.to_modes(values["a"].astype(float))[:, None]
    low, off, _ = check._advanced(v, 1.0)
    exact = np.exp(GROWTH) * np.sqrt(0.5)
    assert np.sqrt(2) * abs(low[0, 0, 1]) == pytest.approx(exact, rel=1e-6)
    assert 0 < off[0] < 1e-5 * exact


def test_later_frames_are_compared_in_the_first_samples_and_one_in_each():
    times = [0.5, 1.0, 1.5]
    for sample, frame, said in ((1, 2, "each frame"), (0, 2, "each frame"), (2, 2, None),
                                (3, 2, "a frame"), (4, 1, "a frame")):  # fmt: skip
        values = grown(times, 5)
        values["u"][sample, frame] *= 1.01
        found = findings(law(evolved(times)), values)
        assert {one.sample for one in found} == ({sample} if said else set())
        assert said is None or any(said in one.message for one in found)


@pytest.mark.parametrize("name", ["kdv", "kuramoto-sivashinsky", "swift-hohenberg"])
def test_noise_allows_itself_no_aliases(name):
    values = dict(stored(name))
    noise = np.random.default_rng(0).standard_normal(values["u"].shape)
    values["u"] = values["u"] + np.float32(0.2 * values["u"].std()) * noise.astype(np.float32)
    assert any(
        "at the one before" in one.message
        for one in findings(problem(name).checks_of_store(), values)
    )


def test_a_frame_at_the_start_is_the_input():
    values = grown([0.0, 1.0])
    assert findings(law(evolved([0.0, 1.0])), values) == []
    values["u"][2, 0] *= 1 + 1e-5
    assert [one.sample for one in findings(law(evolved([0.0, 1.0])), values)] == [2]


def test_frames_that_show_little_are_left_out():
    assert len(list(evolved([1.0], n=14).checks())) == 2
    assert list(evolved([1.0], n=12).checks()) == []


def test_frames_that_are_too_far_apart_are_left_out():
    """In 256 steps of 20, v' = v/2 grows beyond all numbers; the pairs before are compared."""
    times = [1.0, 5001.0, 5002.0]
    values = grown([1.0, 2.0, 3.0])
    assert findings(law(evolved(times)), values) == []
    values["u"][0, 0] *= 1.01
    assert [one.sample for one in findings(law(evolved(times)), values)] == [0, 0]


@pytest.mark.parametrize("folded", [True, False])
def test_aliases_are_allowed_for(folded):
    """A wave of 60 modes moves, of which 32 points show those beyond 15 as others that move on
    their own."""

    def moving(torus):
        return np.zeros((1, *torus.shape)), lambda v: -torus.d[0] * v

    def wave(t):
        k = np.arange(1, 61)
        return np.cos(2 * np.pi * np.outer(PeriodicGrid(N).x - t, k)) @ (1 / k)

    told = replace(evolved([0.02]), terms=moving, folded=folded)
    values = {"a": wave(0)[None], "u": wave(0.02)[None, None], "error": np.full(1, 1e-9)}
    assert bool(findings(law(told), values)) != folded


def test_findings_do_not_depend_on_how_samples_come():
    name = "kdv"
    values = {**stored(name), "u": stored(name)["u"][::-1]}
    whole, pieces = (findings(problem(name).checks_of_store(), values, size) for size in (8, 3))
    assert whole == pieces != []
