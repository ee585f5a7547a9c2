"""Classical inversions: what is handed to a method, and what is computed of its estimates."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from pdegen.domains import Box, Cloud
from pdegen.inverse.classical import ClassicalMethod, Estimate, InverseProblem
from pdegen.sampling.noise_law import NoiseLaw
from pdegen.schema import SchemaError
from pipelines.config.experiment import InputNoise, load_experiment
from pipelines.studies import inversions as module
from pipelines.studies.inversions import (
    ChosenWeight,
    Inversions,
    Inverted,
    Observed,
    check_methods,
    chosen,
    no_inverse_problem,
    none_offered,
    on_cells,
)

A = np.arange(1.0, 17).reshape(4, 4) ** 2


def test_means_are_over_samples():
    found = Inverted(
        (Estimate(A, 3, 10, True), Estimate(2 * A, 5, 20, False), Estimate(5 * A, 10, 60, True)),
        1.5,
    )
    assert (len(found), found.solves, found.iterations, found.converged) == (3, 6.0, 30.0, 2)
    fields = found.fields(2)
    blocks = A.reshape(2, 2, 2, 2).mean(axis=(1, 3))
    assert fields == pytest.approx(np.stack([blocks, 2 * blocks, 5 * blocks]))


def test_cells_are_averaged_along_each_axis():
    halves = np.array([0.0, 1.0, 5.0])
    # cells of 3/2 cells
    assert on_cells(halves, 2) == pytest.approx([1 / 3, 11 / 3])
    a = halves[:, None] + 10 * halves
    means = np.array([1 / 3, 11 / 3])
    assert on_cells(a, 2) == pytest.approx(means[:, None] + 10 * means)


def test_the_first_observation_keeps_its_axis():
    data = observed(np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[0.1, 0.2], [0.3, 0.4]]))
    assert data.only(0).values.tolist() == [[1.0, 2.0]]
    assert data.only(0).std.tolist() == [[0.1, 0.2]]


def observed(values, std):
    """Data with independent Gaussian noise."""
    return Observed(values, [NoiseLaw(std=row) for row in std])


def with_methods(**methods: ClassicalMethod) -> Inversions:
    found = Inversions(SimpleNamespace())  # type: ignore[arg-type]
    found.__dict__["_choice"] = methods, ""
    return found


def test_a_method_gets_its_weight_its_data_and_their_deviation():
    calls = []

    def with_weight(weight):
        def invert(d, s):
            calls.append((weight, d.tolist(), s.tolist()))
            return Estimate(weight * d + s, 1, 2, True)

        return invert

    found = with_methods(a=ClassicalMethod("", (1.0,), lambda w: None), b=ClassicalMethod(
        "", (1.0, 2.0), with_weight))  # fmt: skip
    data = observed(np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[0.1, 0.2], [0.3, 0.4]]))
    inverted = found.invert("b", 5.0, data)
    assert [estimate.a.tolist() for estimate in inverted.estimates] == [[5.1, 10.2], [15.3, 20.4]]
    first = (5.0, [1.0, 2.0], [0.1, 0.2])
    # the first is inverted before the clock starts
    assert calls == [first, first, (5.0, [3.0, 4.0], [0.3, 0.4])]
    assert inverted.seconds >= 0


def test_the_first_method_that_can_corrects_predictions():
    def correct(d, s, a):
        return Estimate(d + 10 * s + 100 * a, 1, 1, True)

    alone = ClassicalMethod("", (1.0,), lambda w: None)
    found = with_methods(
        a=alone, b=ClassicalMethod("", (1.0,), lambda w: None, correct),
        c=ClassicalMethod("", (1.0,), lambda w: None, lambda d, s, a: None),
    )  # fmt: skip
    assert found.corrector == "b"
    assert with_methods(a=alone).corrector is None
    data = observed(np.array([[1.0], [2.0]]), np.array([[3.0], [4.0]]))
    inverted = found.correct(data, np.array([[5.0], [6.0]]))
    assert [float(estimate.a[0]) for estimate in inverted.estimates] == [531.0, 642.0]


def test_a_single_weight_is_not_searched_for():
    found = with_methods(a=ClassicalMethod("", (7.0,), lambda w: None))
    data = observed(np.ones((2, 3)), np.ones((2, 3)))
    assert found.choice("a", data, np.ones((2, 3))) == ChosenWeight(7.0, 0, False, 0)


def test_a_weight_whose_inversion_fails_is_not_chosen():
    def with_weight(weight):
        a = np.full(3, np.nan) if weight == 3 else np.full(3, weight)
        return lambda d, s: Estimate(a, 1, 1, weight != 4)

    found = with_methods(a=ClassicalMethod("", (1.0, 2.0, 3.0, 4.0, 5.0), with_weight))
    data = observed(np.ones((2, 3)), np.ones((2, 3)))
    choice = found.choice("a", data, np.full((2, 3), 3.6))
    assert choice == ChosenWeight(4.0, 2, False, 2)


@pytest.fixture
def forward():
    """An equation whose data are twice the coefficient."""

    def made(sensors=None, std=(0.5, 0.25, 2.0)):
        found = with_methods()
        u = np.arange(12.0).reshape(4, 3)
        found.__dict__["setting"] = InverseProblem(np.arange(3.0), u, u, sensors)
        found.__dict__["_forward"] = lambda a: 2 * a
        values = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 7.0]])
        spread = np.tile(np.array(std), (2, 1))
        if sensors is not None:
            values, spread = values[:, sensors], spread[:, sensors]
        return found, observed(values, spread)

    return made


def test_a_misfit_is_in_units_of_the_deviation(forward):
    found, data = forward()
    fields = [np.array([0.5, 0.5, 1.0]), np.array([2.0, 3.0, 4.0])]
    first = (0 / 0.5) ** 2 + (1 / 0.25) ** 2 + (1 / 2) ** 2
    second = (0 / 0.5) ** 2 + (1 / 0.25) ** 2 + (1 / 2) ** 2
    expected = [np.sqrt(first / 3), np.sqrt(second / 3)]
    assert found.misfits(data, fields) == pytest.approx(expected)
    assert found.has_forward


def test_a_misfit_is_that_of_the_sensors(forward):
    found, data = forward(np.array([True, False, True]))
    fields = [np.array([0.5, 9.0, 1.0]), np.array([3.0, 9.0, 4.5])]
    expected = [np.sqrt((0 + (1 / 2) ** 2) / 2), np.sqrt(((2 / 0.5) ** 2 + 1) / 2)]
    assert found.misfits(data, fields) == pytest.approx(expected)


def test_there_is_no_misfit_without_noise_or_a_map(forward):
    found, data = forward(std=(0.5, 0.0, 2.0))
    assert found.misfits(data, [np.ones(3)] * 2) is None
    found, data = forward()
    found.__dict__["_forward"] = None
    assert found.misfits(data, [np.ones(3)] * 2) is None
    assert not found.has_forward
    assert found.solve_seconds == 0.0


def test_the_solver_is_timed_per_sample(forward, monkeypatch):
    found, _ = forward()
    now = iter([10.0, 14.0])
    monkeypatch.setattr(module, "process_time", lambda: next(now))
    assert found.solve_seconds == 1.0  # four samples
    found, _ = forward()
    u = np.zeros((9, 3))
    found.__dict__["setting"] = InverseProblem(np.arange(3.0), u, u)
    now = iter([10.0, 14.0])
    assert found.solve_seconds == 4 / 5


def test_data_have_the_deviation_that_the_noise_states(forward, monkeypatch):
    found, _ = forward()
    a = np.random.default_rng(0).normal(size=(3, 3, 1))
    domain = SimpleNamespace(points=np.arange(3.0)[:, None])
    pairs = SimpleNamespace(a=torch.from_numpy(a).float(), domain=domain)
    spread = np.array([0.2, 0.3, 0.5])
    monkeypatch.setattr(found.source, "std", lambda of: spread, raising=False)
    noise = InputNoise(level=0.1)
    data = found.data(pairs, noise, 3.0, 2)
    assert data.values == pytest.approx(a[:2, :, 0], rel=1e-6)
    model = noise.build()
    expected = [3 * model.law(d, found.setting.u, spread).std for d in data.values]
    assert data.std == pytest.approx(np.stack(expected))
    mask = np.array([True, False, True])
    u = found.setting.u
    found.__dict__["setting"] = InverseProblem(np.arange(3.0), u, u, mask)
    some = found.data(pairs, noise, 3.0, 2)
    assert some.values.tolist() == data.values[:, mask].tolist()
    assert some.std.tolist() == data.std[:, mask].tolist()


class Offers:
    """An equation with two methods."""

    def inversions(self, setting):
        if setting is None:
            raise SchemaError("no law")
        return {"a": 1, "b": 2}


def test_methods_are_those_that_are_named():
    assert chosen(Offers(), 0, ()) == ({"a": 1, "b": 2}, "")
    assert chosen(Offers(), 0, ("b",)) == ({"b": 2}, "")
    with pytest.raises(SchemaError, match="unknown method 'c': known: 'a', 'b', 'none'"):
        chosen(Offers(), 0, ("b", "c"))


def test_a_refusal_counts_only_where_methods_are_requested():
    assert chosen(Offers(), None, ()) == ({}, "no law")
    with pytest.raises(SchemaError, match=r"^--method 'b': there are no .*: no law$"):
        chosen(Offers(), None, ("b", "a"), 5)
    with pytest.raises(SchemaError, match=r"^--cells: there are no classical methods: why$"):
        none_offered("why", (), 0)
    assert none_offered("why", (), None) == ({}, "why")


def test_only_inverse_problems_on_grids_have_methods():
    inverse = load_experiment("darcy-inverse-quick")
    box = Box.cell(4, 4)
    assert no_inverse_problem(inverse, box) == ""
    both = inverse.with_overrides({"noise.on": "both", "noise.level": 0.1})
    assert no_inverse_problem(both, box) == "they invert noisy inputs, not noisy targets"
    assert no_inverse_problem(inverse, Cloud((4,), 2)) == (
        "they need points on a grid, got a cloud"
    )
    direct = load_experiment("darcy-quick")
    assert no_inverse_problem(direct, box) == "darcy-quick does not learn u -> a"


def test_no_method_needs_no_equation():
    direct = load_experiment("darcy-quick")
    check_methods(direct, ("none",), 3)
    check_methods(direct, (), None)
    with pytest.raises(SchemaError, match=r"--method 'Tikhonov': .*does not learn u -> a"):
        check_methods(direct, ("Tikhonov",), None)
    flow = load_experiment("burgers-inverse-quick")
    with pytest.raises(SchemaError, match="--cells: recipe burgers-quick holds no averages"):
        check_methods(flow, (), 8)
