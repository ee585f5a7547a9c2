"""Pictures of trajectories: frames on one scale, what plays, and spectra of single waves."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from operators.data import Channel
from pdegen.domains import Box, PeriodicGrid
from pipelines.reports.document import Picture
from pipelines.reports.fields import Functions, Look
from pipelines.reports.pictures import frames, playing, shells, spectrum


def trajectory(n: int, times: int, components: tuple[str, ...] = ("",)) -> Functions:
    values = np.random.default_rng(0).normal(size=(1, n, n, times * len(components)))
    channels = tuple(Channel("w", c, float(t)) for t in range(times) for c in components)
    return Functions(Look("w", "diverging"), values, channels, Box.periodic(n, n))


def test_frames_of_the_first_component_have_one_scale():
    truth = trajectory(8, 7, ("u_x", "u_y"))
    figure = frames(truth, truth.values + 3.0, 0)
    drawn = [axes for axes in figure.axes if axes.images]
    assert len(drawn) == 3 * 5
    assert [axes.get_title(loc="left").split("\n")[0] for axes in drawn[::5]] == [
        "truth u_x", "prediction p", "difference p − u_x",
    ]  # fmt: skip
    limits = [image.get_clim() for axes in drawn[:15] for image in axes.images]
    assert len(set(limits)) == 1
    assert limits[0][1] >= truth.values[..., ::2].max() + 3.0  # of the predictions too
    np.testing.assert_allclose(np.asarray(drawn[10].images[0].get_array()), 3.0)


def test_frames_have_x_to_the_right_and_y_upwards():
    values = np.zeros((1, 8, 8, 2))
    values[0, -1, 0] = 1.0  # the last x, the first y
    corner = replace(trajectory(8, 2), values=values)
    image = next(axes.images[0] for axes in frames(corner, values, 0).axes if axes.images)
    rows, columns = np.asarray(image.get_array()).nonzero()
    assert (rows.tolist(), columns.tolist(), image.origin) == ([0], [7], "lower")


def test_what_plays_is_bounded_and_keeps_its_pace(monkeypatch):
    monkeypatch.setattr("pipelines.reports.pictures.BYTES", 100_000)
    noise = trajectory(100, 8)
    live = playing(Picture("frames", "noise", "<svg/>"), noise, noise.values, 0).live
    assert len(live) < 1.4 * 100_000  # base64 has four letters for three bytes
    (milliseconds,) = re.findall(r'data-moving="(\d+)"', live)
    shown = [float(t) for t in re.findall(r'data-label="t = ([^"]+)"', live)]
    assert 1 < len(shown) < 8
    assert int(milliseconds) == 200 * (shown[1] - shown[0])


def test_the_power_of_a_wave_is_in_its_shell():
    x = np.arange(24) / 24
    wave = np.cos(2 * np.pi * (3 * x[:, None] + 4 * x))[None, ..., None]
    k, power = shells(wave, (1.0, 1.0))
    assert k[power.argmax()] == 5
    np.testing.assert_allclose(power.sum(), np.mean(wave**2))


def test_the_spectrum_of_a_long_box_is_over_waves_of_its_longer_side():
    """8 x 2: a wave of 3 periods along x and 1 along y has |k| = √(3² + 4²) there."""
    box = Box((PeriodicGrid(32, length=8.0), PeriodicGrid(32, length=2.0)))
    x, y = (np.arange(32) / 32 for _ in range(2))
    wave = np.cos(2 * np.pi * (3 * x[:, None] + y))[None, ..., None]
    truth = Functions(Look("u"), wave, (Channel("u", "", 1.0),), box)
    lines = spectrum(truth, 2 * wave, 1.0).axes[0].get_lines()
    for line, power in zip(lines, (0.5, 2.0, 0.5), strict=True):
        k, found = (np.asarray(values) for values in line.get_data())
        assert k[found.argmax()] == 5
        assert found.max() == pytest.approx(power)
