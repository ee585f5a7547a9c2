"""Pictures of predictions have the numbers and words of the errors that they show."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image

from operators.data import Channel
from pdegen.domains import Box
from pipelines.reports import report
from pipelines.reports.document import Picture
from pipelines.reports.fields import Functions, Look
from pipelines.reports.pictures import Slide, by_error, sample_slides, with_slides
from tests.pipelines.test_drawn_samples import functions, panels

RNG = np.random.default_rng(5)


@pytest.fixture
def pictures(monkeypatch):
    """Pictures as they are made: figure, name, caption and whether it takes half the width."""
    made = []
    monkeypatch.setattr(
        report, "picture",
        lambda figure, name, caption, half=False: made.append((figure, name, caption, half)),
    )  # fmt: skip
    return made


def two_phases(target: bool = False, phases=(3.0, 12.0)) -> SimpleNamespace:
    """A run on media that are 12 in the first column alone, or in the last two."""
    medium = torch.full((2, 4, 5, 1), 3.0)
    medium[0, 0], medium[1, 2:] = 12.0, 12.0
    other = torch.zeros_like(medium)
    pairs = SimpleNamespace(a=other if target else medium, u=medium if target else other)
    return SimpleNamespace(phases=phases, target_phases=phases if target else None, pairs=pairs)


@pytest.mark.parametrize("target", [False, True])
def test_the_mean_error_is_told_next_to_interfaces_and_elsewhere(pictures, target):
    truth = functions("u", (4, 5), count=2)
    error = RNG.normal(size=truth.values.shape)
    report._where(two_phases(target), truth, error)
    ((figure, name, caption, half),) = pictures
    size = np.abs(error[..., 0])
    near = np.zeros((2, 4, 5), dtype=bool)
    near[0, :2] = near[1, 1:3] = True
    assert caption == (
        "Mean |p − u| at each point over the 2 test samples. Its mean is "
        f"{size[near].mean():.3g} in cells next to an interface and {size[~near].mean():.3g} in "
        "the other cells."
    )
    assert (name, half) == ("mean-error", True)
    np.testing.assert_allclose(panels(figure)[0][2], size.mean(axis=0))


def test_without_interfaces_the_mean_error_is_told_without_them(pictures):
    run = two_phases()
    truth = functions("u", (4, 5), ("u_1", "u_2"), (0.5, 1.5), count=2)
    report._where(SimpleNamespace(phases=None), truth, truth.values)
    assert pictures[0][2:] == (
        "Mean |p − u| at each point over the 2 test samples and times.", False,
    )  # fmt: skip
    size = np.ones((2, 4, 5))
    run.pairs.a = torch.full((2, 4, 5, 1), 3.0)
    assert report._at_the_interface(run, size) == ""
    assert report._at_the_interface(two_phases(), size[:, :, :4]) == ""


def test_the_caption_of_predictions_explains_the_panels():
    line, plane = functions("w", (6,)), functions("w", (5, 4))
    said = report._explained
    assert said(line, False, False) == (
        "The input. Prediction p over the truth w, and the error p − w with its own scale for each "
        "sample."
    )
    assert said(line, True, False).startswith("Prediction p over")
    scales = (
        " w, prediction p and error p − w. Truth and prediction of a sample have the same scale; "
        "the error of each sample has its own. x points to the right, y upwards."
    )
    assert said(plane, False, False) == (
        f"Input, truth{scales} The input is drawn as given to the model."
    )
    assert said(plane, False, True).endswith("is drawn with the noise that the model sees.")
    assert said(plane, True, True) == f"Truth{scales}"
    near = Functions(plane.look, plane.values, plane.channels, plane.domain,
                     near=(np.array([-1.0, 0.25]), np.array([2.0, 0.75])))  # fmt: skip
    assert said(near, True, False).endswith(
        "The picture shows x from -1 to 2 and y from 0.25 to 0.75."
    )
    several = functions("w", (5, 4), times=(0.5, 1.0, 1.5))
    assert said(several, True, False).endswith(" Drawn of 3 channels: w, t = 1.5.")


def test_errors_at_each_time_are_those_of_its_channels():
    channels = [("u_1", 0.5), ("u_2", 0.5), ("u_1", 1.5), ("u_2", 1.5), ("p", 1.5)]
    truth = Functions(
        Look("u"), np.zeros((2, 4, 4, 5)), tuple(Channel("u", *c) for c in channels), Box.cell(4, 4)
    )
    errors = np.arange(10.0).reshape(2, 5)
    run = SimpleNamespace(prediction=None, errors=lambda p, count: errors[:, :count])
    found = report._by_time(run, truth)
    assert {name: of.tolist() for name, of in found.items()} == {
        "u_1": [[0, 2], [5, 7]], "u_2": [[1, 3], [6, 8]],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("modes", "words"), [(None, ""), (7, " The decoder keeps the modes below 7.")]
)
def test_a_spectrum_says_which_modes_the_decoder_keeps(pictures, modes, words):
    x = np.sin(2 * np.pi * np.arange(16) / 16)[None, :, None]
    run = SimpleNamespace(
        experiment=SimpleNamespace(model=SimpleNamespace(modes=modes)),
        pairs=SimpleNamespace(u=torch.tensor(x)), prediction=torch.tensor(3 * x),
    )  # fmt: skip
    report._spectrum(run)
    ((figure, name, caption, half),) = pictures
    assert (name, half) == ("error-spectrum", True)
    assert caption == (
        "Mean modulus of the Fourier coefficients of target and error. Curves end at the rounding "
        f"errors.{words}"
    )
    u, e, *marks = figure.axes[0].lines
    assert (u.get_ydata()[0], e.get_ydata()[0]) == (pytest.approx(0.5), pytest.approx(1))
    assert len(marks) == (modes is not None)


# slides


def image(shade: int) -> Image.Image:
    return Image.new("RGB", (30 + shade, 20), (shade, 0, 0))


def test_slides_have_their_size_labels_and_the_first_that_is_shown():
    slides = [Slide(image(k), f"label <{k}>", f'alt "{k}"') for k in range(4)]
    made = with_slides(Picture("p", "c", "<svg/>", live="before"), slides, "time", 2, 250)
    assert made.live.startswith(
        'before<div class="live" data-word="time" data-start="3" data-moving="250" hidden>'
    )
    for k in range(4):
        assert (
            f'width="{30 + k}" height="20" alt="alt &quot;{k}&quot;" '
            f'data-label="label &lt;{k}&gt;" hidden>'
        ) in made.live
    assert made.live.count("<img ") == 4
    assert (made.name, made.caption, made.svg) == ("p", "c", "<svg/>")
    still = with_slides(Picture("p", "c", "<svg/>"), slides, "sample")
    assert 'data-word="sample" data-start="1" hidden>' in still.live


def test_fewer_slides_start_at_the_same_one_and_move_more_slowly(monkeypatch):
    noise = np.random.default_rng(0).integers(0, 255, (6, 40, 40, 3), "uint8")
    slides = [Slide(Image.fromarray(of), f"{k}", f"{k}") for k, of in enumerate(noise)]
    monkeypatch.setattr("pipelines.reports.pictures.BYTES", 3 * 40 * 40 * 3 + 2000)
    made = with_slides(Picture("p", "c", "<svg/>"), slides, "time", 4, 100).live
    assert made.count("<img ") == 3
    assert 'data-start="3" data-moving="200"' in made
    assert [f'data-label="{k}"' in made for k in range(6)] == [True, False] * 3


def test_samples_slide_in_the_order_of_their_errors_with_their_ranks():
    errors = np.array([0.3, np.nan, 0.1, 0.4, 0.2])
    drawn = []

    def draw(i: int):
        drawn.append(i)
        return report.pictures.drawn(None, [one], {"": i})

    truth = functions("u", (6,), count=5)
    one = report.pictures.Predicted("", truth, 2 * truth.values, errors)
    slides, middle = sample_slides(errors, [10, 11, 12, 13, 14], draw, "panels")
    assert drawn == [2, 4, 0, 3]
    assert middle == 1
    assert [slide.label for slide in slides] == [
        f"number {number} in the store, error {error}, rank {rank} of 4 from the smallest error"
        for rank, (number, error) in enumerate(
            [(12, "1.00e-1"), (14, "2.00e-1"), (10, "3.00e-1"), (13, "4.00e-1")], 1
        )
    ]
    assert [slide.alt for slide in slides] == [f"panels: {slide.label}" for slide in slides]


def test_a_few_samples_have_both_ends_and_the_median():
    errors = np.arange(10.0)[::-1]
    assert by_error(errors, 4) == [9, 5, 3, 0]
    assert by_error(np.array([5.0, 4, 3, 2, 1, 0]), 3) == [5, 3, 0]
