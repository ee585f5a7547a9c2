"""Reports on attention: functions beside those of the equation, spectra, agreement."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from benchmarks.attention import report as attention
from benchmarks.attention.latent import Latent, latents
from benchmarks.attention.report import agreement
from operators.transforms import Normalizer, Predictor
from pipelines.reports.document import Report, markdown
from pipelines.runs.finished import read_finished
from tests.operators.test_quadrature import pairs, small
from tests.pipelines.conftest import CPU


def test_the_leading_functions_are_compared():
    """The leading one holds 9 of 10 parts of the energy, half of it along the eigenfunction."""
    e, features = np.eye(4)[:, :1], np.zeros((4, 2))
    features[:, 0], features[3, 1] = [3 * 0.5**0.5, 3 * 0.5**0.5, 0, 0], 1
    turned = features @ np.array([[1, -1], [1, 1]]) / 2**0.5  # the features are mixtures
    share, cosines = agreement(turned, e)
    assert share == pytest.approx(0.45)
    assert cosines**2 == pytest.approx([0.5])


def section(run):
    parts = attention.sections(read_finished(*run, CPU))
    return markdown(Report("Attention", "", "", [], parts)).partition("## What attention does")[2]


def test_the_coefficient_and_the_prediction_are_of_the_median_sample(darcy):
    run = read_finished(*darcy, CPU)
    first, second = (attention._eigenfunctions(run, i, run.pairs.domain)[0] for i in (0, 1))
    assert np.abs(first - second).max() > 1e-6
    errors = run.errors(run.prediction)[:, 0]
    median = run.pairs.ids[np.argsort(errors)[(len(errors) - 1) // 2]]
    assert f"Test sample {median}, the median" in section(darcy)


def test_the_table_is_of_what_attention_adds_and_of_the_features_after_it():
    e = torch.eye(4)[None, :, :3]
    scale = torch.tensor([2.0, 1.0, 0.0])
    layer = Latent(before=4 * e, after=e * scale, added=e, heads=e[:, None])
    found = None, np.eye(4)[:, :1]
    [row] = attention._table([layer], found).rows
    assert row == ("1", "0.25", "3.0 of 3", "1.6 of 3", "0.800", "1.000", "0°", "0°")
    assert attention._leading(layer.after[0].numpy(), 2)[1] == pytest.approx([0.8, 0.2])


def test_layers_are_seen_with_the_weights_of_the_points():
    one, data = Normalizer.identity(1), pairs()
    predictor, sample = Predictor(small(dim=2).float(), one, one), data.sample(2)
    found = attention._layers(SimpleNamespace(pairs=data, predictor=lambda: predictor), 2)
    places = sample.a, sample.x
    for weight, same in ((sample.weight, True), (None, False)):
        expected = latents(predictor, lambda weight=weight: predictor(*places, weight=weight))
        assert torch.equal(found[-1].heads, expected[-1].heads) == same
