"""Rows of studies: their means, costs and cases."""

import math

import numpy as np
import pytest

from pipelines.studies.cost import Cost
from pipelines.studies.runner import NO_MEMORY, Row, by_case, mean_and_spread, mean_measured


def test_the_mean_of_a_row_leaves_out_undefined_errors():
    assert Row(errors=[0.5, math.nan, 0.1, 0.3]).mean == pytest.approx(0.3)
    assert math.isnan(Row(errors=[math.nan]).mean)


def test_a_cost_is_entered_and_read_back():
    row = Row()
    row.cost = Cost(1.5, 20, 300)
    assert (row.step_seconds, row.step_bytes, row.step_flops) == (1.5, 20, 300)
    assert row.cost == Cost(1.5, 20, 300)


def test_a_row_has_costs_if_steps_and_predictions_are_measured():
    assert Row(step_seconds=0.1, inference_seconds=0.2).has_costs
    assert not Row(step_seconds=0.1).has_costs
    assert not Row(inference_seconds=0.2).has_costs


def test_want_of_memory_is_told_from_other_failures():
    assert Row(failed=f"{NO_MEMORY}: 3 GiB").lacked_memory
    assert not Row(failed=f"diverged, {NO_MEMORY}").lacked_memory
    assert not Row().lacked_memory


def test_costs_that_were_not_measured_do_not_count():
    assert mean_measured([0.5, 0.0, 1.5, 4.0]) == 2.0
    assert mean_measured([0.0, 0.0]) == 0.0
    assert mean_measured([]) == 0.0


def test_the_spread_is_that_of_the_means_of_seeds():
    rows = [
        Row(errors=[1.0, 2.0, math.nan, 6.0], scores={"iou": [0.1, 0.5]}),
        Row(errors=[4.0, 5.0], scores={"iou": [0.7, 0.9]}),
        Row(errors=[7.0], scores={"iou": [0.2]}),
    ]
    means = [3.0, 4.5, 7.0]
    assert mean_and_spread(rows) == pytest.approx((np.mean(means), np.std(means, ddof=1)))
    means = [0.3, 0.8, 0.2]
    expected = np.mean(means), np.std(means, ddof=1)
    assert mean_and_spread(rows, "iou") == pytest.approx(expected)
    assert mean_and_spread(rows[1:2]) == (4.5, 0.0)
    assert mean_and_spread([*rows, Row(errors=[math.inf])]) == (math.inf, 0.0)
    mean, spread = mean_and_spread(rows, "hausdorff")
    assert math.isnan(mean)
    assert spread == 0.0


def test_rows_of_a_case_differ_in_their_seeds_alone():
    names = [("a", "fno", ""), ("a", "fno", "published"), ("a", "unet", ""), ("b", "fno", "")]
    rows = [
        Row(dataset=d, operator=o, protocol=p, seed=seed) for seed in (0, 1) for d, o, p in names
    ]
    found = by_case(rows)
    assert list(found) == names
    assert [[row.seed for row in group] for group in found.values()] == [[0, 1]] * 4
