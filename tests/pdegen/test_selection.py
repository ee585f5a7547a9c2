"""Recipes that select samples by a statistic of their input, and recipes of later samples."""

import numpy as np
import pytest

from pdegen import recipe as module
from pdegen.checks.check import Check
from pdegen.equations.base import SampleError
from pdegen.generation.generate import error_key, generate, measured_errors
from pdegen.generation.pools import pool
from pdegen.generation.verify import verify
from pdegen.recipe import load_recipe
from pdegen.sampling.noise import hashed
from pdegen.schema import SchemaError
from pdegen.store.objects import Objects
from pdegen.store.reading import open_sealed

DARCY = load_recipe("darcy-quick").with_overrides(
    {"samples": 24, "shard": 5, "resolution": 13, "modes": 43, "refinement": 1}
)
LOW, HIGH = 0.46, 0.54  # 0.7 deviations of the share
MIDDLE = DARCY.with_overrides({"select": {"statistic": "share", "low": LOW, "high": HIGH}})
# the law of GT's and PDEInvBench's coefficients
LAW = load_recipe("darcy-421").with_overrides({"resolution": 43, "modes": 43})
SD = 0.0574  # of the share


def shares(recipe, samples):
    drawn = recipe.problem.statistics["share"].drawn
    return np.array([drawn(*recipe.stream(i)) for i in range(samples)])


def test_accepted_samples_are_those_of_the_recipe_without_a_selection():
    usual, selected = (r.compute(range(24)) for r in (DARCY, MIDDLE))
    first = np.array([MIDDLE.stream(i) == (MIDDLE.seed, i) for i in range(24)])
    accepted = (abs(shares(DARCY, 24) - 0.5) <= 0.04 + 1e-12).tolist()
    assert first.tolist() == accepted
    assert 6 < first.sum() < 22
    for name, values in usual.items():
        assert np.array_equal(values[first], selected[name][first])
    assert not np.any([np.array_equal(*pair) for pair in
                       zip(usual["a"][~first], selected["a"][~first], strict=True)])  # fmt: skip
    assert np.all(abs(shares(MIDDLE, 24) - 0.5) <= 0.04 + 1e-12)


def test_later_attempts_have_seeds_of_their_own():
    """A sample is that of a recipe with the hashed seed, and no number takes part."""
    later = next(i for i in range(24) if MIDDLE.stream(i)[0] != 0)
    seed, number = MIDDLE.stream(later)
    assert number == later
    attempts = [hashed(0, "attempt", k) for k in range(1, 100)]
    other = DARCY.with_overrides({"seed": seed})
    assert seed in attempts
    here, there = (r.compute(range(later, later + 1)) for r in (MIDDLE, other))
    assert all(np.array_equal(here[name], there[name]) for name in here)


def test_the_samples_outside_are_the_others():
    outside = MIDDLE.with_overrides({"select.outside": True})
    first = [[r.stream(i)[0] == 0 for i in range(24)] for r in (MIDDLE, outside)]
    assert first[0] == [not accepted for accepted in first[1]]
    assert np.all(abs(shares(outside, 24) - 0.5) > 0.04 - 1e-12)


def test_a_sample_is_the_same_at_every_resolution():
    finer = MIDDLE.with_overrides({"resolution": 27, "refinement": 3})
    assert [finer.stream(i) for i in range(24)] == [MIDDLE.stream(i) for i in range(24)]


def test_any_workers_and_interruptions_give_the_same_store(tmp_path):
    class Stopped(Exception):
        pass

    def stop(progress):
        if progress.done == 2:
            raise Stopped

    one = generate(MIDDLE, str(tmp_path / "one.zarr"), workers=1)
    two = str(tmp_path / "two.zarr")
    with pytest.raises(Stopped):
        generate(MIDDLE, two, workers=2, progress=stop)
    again = generate(MIDDLE, two, workers=2, resume=True)
    assert one.metadata.content == again.metadata.content
    result = verify(two, deep=24)
    assert result.faults == []
    assert len(result.recomputed) == 24
    (tmp_path / "two.zarr" / "a" / "c" / "1" / "0" / "0").write_bytes(b"damaged")
    assert verify(two).faults
    generate(MIDDLE, two, resume=True)
    assert verify(two).faults == []


def findings(check, recipe, samples):
    values = recipe.compute(range(samples))
    return [finding.message for finding in check.check([(np.arange(samples), values)])]


def test_the_law_has_the_bounds_in_place_of_moments():
    """Selected samples are beyond chance for the law of all samples, and the other way round."""
    burgers = load_recipe("burgers-quick").with_overrides({"resolution": 64, "samples": 300})
    energies = [burgers.problem.statistics["energy"].drawn(0, i) for i in range(50)]
    low = float(np.median(energies))
    select = {"statistic": "energy", "low": low, "high": 1e9}
    selected = burgers.with_overrides({"select": select})
    whole = findings(selected.problem.checks_of_store(), selected, 300)
    assert any("beyond chance" in message for message in whole)
    assert findings(selected.checks(), selected, 300) == []
    assert findings(burgers.checks(), burgers, 300) == []
    wrong = findings(selected.checks(), burgers, 300)
    assert len(wrong) == 1
    assert "the distance of the energy from the bounds of [select] is" in wrong[0]
    assert "at most" in wrong[0]


def test_checks_of_each_sample_remain():
    values = MIDDLE.compute(range(24))
    values["u"][3] *= -1
    blocks = [(np.arange(24), values)]
    messages = [finding.message for finding in MIDDLE.checks().check(blocks)]
    assert any("sample 3: the number of cells with the wrong sign" in m for m in messages)
    assert all(type(check).statistics is Check.statistics for check in MIDDLE.checks().each)


@pytest.mark.parametrize("name", ["share", "length"])
def test_stored_phases_have_the_drawn_statistic_up_to_the_stated_difference(name):
    recipe = DARCY.with_overrides({"modes": 85, "resolution": 21})
    statistic = recipe.problem.statistics[name]
    drawn = np.array([statistic.drawn(0, i) for i in range(24)])
    stored, slack = statistic.stored(recipe.compute(range(24)))
    assert np.all(abs(stored - drawn) <= slack)
    assert np.all(slack <= {"share": 0.7, "length": 1.0}[name] * stored)


def test_the_energy_is_the_mean_square_of_the_field():
    recipe = load_recipe("darcy-lognormal").with_overrides({"resolution": 21, "modes": 21})
    statistic = recipe.problem.statistics["energy"]
    stored, slack = statistic.stored(recipe.compute(range(4)))
    assert stored == pytest.approx([statistic.drawn(0, i) for i in range(4)], rel=1e-5)
    assert np.all(slack == 0.25 * stored)
    field = recipe.problem.field.build()
    variance = field.pointwise_variance(recipe.problem.grid).mean()
    every = [statistic.drawn(0, i) for i in range(400)]
    assert np.mean(every) == pytest.approx(variance, rel=4 * np.std(every) / 20 / variance)


def test_labels_are_compared_for_the_selected_samples():
    later = next(i for i in range(24) if MIDDLE.stream(i)[0] != 0)
    problem, (seed, number) = MIDDLE.problem, MIDDLE.stream(later)
    with pool("threads", 1) as workers:
        found = measured_errors(MIDDLE, [later], workers)
    assert found == {later: float(f"{problem.label_error(seed, number):.4g}")}
    assert len({error_key(r) for r in (DARCY, MIDDLE, DARCY.with_overrides({"first": 1}))}) == 3


# refusals and fingerprints


def test_recipes_without_a_selection_have_the_keys_of_older_versions():
    content = DARCY.model_dump(mode="json")
    assert not {"select", "first"} & content.keys()
    length = {"select.statistic": "length"}
    others = DARCY.with_overrides({"first": 3}), MIDDLE, MIDDLE.with_overrides(length)
    fingerprints = {recipe.fingerprint for recipe in (DARCY, *others)}
    assert len(fingerprints) == 4


@pytest.mark.parametrize(
    ("select", "message"),
    [
        ({"statistic": "shar", "low": 0.0, "high": 1.0}, "unknown 'shar': darcy has share, length"),
        ({"statistic": "energy", "low": 0.0, "high": 1.0}, "unknown 'energy': darcy has share"),
        ({"statistic": "share", "low": 1.0, "high": 0.5}, "low must be less than high, got 1 and"),
        ({"statistic": "share", "low": 0.5}, "select.high: is missing"),
    ],
)
def test_impossible_selections_are_refused(select, message):
    with pytest.raises(SchemaError, match=message):
        DARCY.with_overrides({"select": select})


def test_the_headline_states_the_selection_and_no_remark_on_all_samples():
    select = {"statistic": "share", "low": LOW, "high": 1.0}
    line = load_recipe("darcy-421").with_overrides({"select": select}).headline
    assert line.endswith("; share in [0.46, 1]")
    assert "published" not in line


def test_a_selection_that_no_attempt_meets_ends_with_one_line(monkeypatch, tmp_path):
    monkeypatch.setattr(module, "ATTEMPTS", 20)
    never = MIDDLE.with_overrides({"select.low": 0.9, "select.high": 1.0})
    message = (
        r"^sample 0: none of 20 attempts has a share in \[0.9, 1\]: select more probable values$"
    )
    with pytest.raises(SampleError, match=message):
        generate(never, str(tmp_path / "d.zarr"), workers=1)


def test_a_recipe_of_later_samples_has_their_values(tmp_path):
    later = DARCY.with_overrides({"samples": 6, "first": 18})
    url = str(tmp_path / "d.zarr")
    store = generate(later, url, workers=1)
    assert Objects(url).exists()
    assert verify(url, deep=6).faults == []
    usual, here = DARCY.compute(range(18, 24)), later.compute(range(6))
    assert all(np.array_equal(usual[name], here[name]) for name in usual)
    assert open_sealed(url).metadata.content == store.metadata.content


@pytest.mark.parametrize("recipe", [DARCY, MIDDLE])
def test_a_failed_sample_of_later_samples_has_its_number_in_the_store(recipe, monkeypatch):
    def failing(problem, seed, numbers, device):
        raise SampleError(numbers[-1], "not converged")

    monkeypatch.setattr(type(recipe.problem), "compute", failing)
    with pytest.raises(SampleError, match=r"^sample 2: not converged$"):
        recipe.with_overrides({"samples": 6, "first": 18}).compute(range(2, 3))


# figures of the specification


def test_a_threshold_of_a_quarter_deviation_gives_a_share_of_three_fifths():
    out = LAW.with_overrides(
        {"coefficient": {"kind": "phases", "values": [3.0, 12.0], "thresholds": [-0.0717]}}
    )
    found = shares(out, 1000)
    # the standard error of the mean is 0.0018
    assert found.mean() == pytest.approx(0.606, abs=0.01)
    assert shares(LAW, 1000).mean() == pytest.approx(0.5, abs=0.01)


def test_an_eighth_of_the_samples_is_beyond_one_and_a_half_deviations():
    """PDEInvBench leaves these tails out of the training data: 13.3 % of a normal law."""
    found = shares(LAW, 3000)
    assert found.std() == pytest.approx(SD, abs=0.002)
    assert np.mean(abs(found - 0.5) > 1.5 * SD) == pytest.approx(0.133, abs=0.015)
    inside = LAW.with_overrides(
        {"select": {"statistic": "share", "low": 0.5 - 1.5 * SD, "high": 0.5 + 1.5 * SD}}
    )
    assert np.all(abs(shares(inside, 200) - 0.5) <= 1.5 * SD)
