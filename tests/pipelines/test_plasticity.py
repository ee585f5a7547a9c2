"""Blocks under dies: displacements are learned at a time, and scored with and without positions."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from operators.data import Map, Samples
from pdegen.generation.generate import generate
from pdegen.recipe import load_recipe
from pdegen.schema import SchemaError
from pdegen.store.reading import open_sealed
from pipelines.config.experiment import Experiment, load_experiment
from pipelines.reports import fields, report
from pipelines.reports.fields import Above
from pipelines.reports.pictures import functions, plot_store
from pipelines.reports.report import write_report
from pipelines.runs.evaluation import compute_score, evaluate_run
from pipelines.runs.score import Score, measures_of
from pipelines.runs.training import train
from tests.once import once
from tests.pipelines.conftest import CPU, in_memory, learned

SMALL = {"samples": 6, "shard": 6, "problem.resolution": 21, "imbalance": 0.2, "problem.frames": 4,
         "splits.train": 2, "splits.validation": 2, "splits.test": 2}  # fmt: skip
LATER = ["0.1", "0.2", "0.3"]


def declared() -> Experiment:
    return load_experiment("plasticity-transolver-quick").with_overrides(
        {"width": 8, "depth": 1, "heads": 2, "slices": 4, "feedforward": 8, "epochs": 2,
         "batch": 2, "data.resolution": 21, "resolutions": [21],
         **{f"data.overrides.{key}": value for key, value in SMALL.items()}}
    )  # fmt: skip


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A store, and a run on it."""

    def make(folder):
        recipe = load_recipe("plasticity-quick").with_overrides(SMALL)
        store = generate(recipe, str(folder / "blocks.zarr"), workers=1).url
        train(declared(), store, folder / "run", CPU)
        evaluate_run(declared(), store, folder / "run", CPU)
        write_report(folder / "run", store, CPU)

    return once(tmp_path_factory, "plasticity", make)


@pytest.fixture
def store(made):
    return str(made / "blocks.zarr")


class Scaled(torch.nn.Module):
    """Predicts the true displacements times a factor."""

    def __init__(self, pairs: Samples, by: float) -> None:
        super().__init__()
        self.values = by * pairs.u

    def forward(self, a: torch.Tensor, *places: object, steps: int = 1) -> torch.Tensor:
        return self.values


def test_frames_after_the_first_are_learned_and_scored_by_frame(made, store):
    (content,) = json.loads((made / "run/scores.json").read_text("utf-8"))["results"]
    score = Score.of(content)
    assert list(score.steps) == LATER
    assert [*score.channels][:2] == ["x, t = 0.1", "y, t = 0.1"]
    found = [*score.errors, *score.steps.values(), *score.channels.values()]
    assert all(math.isfinite(error) for error in found)
    seen = learned(store, declared())
    assert (len(seen), seen.channels) == (2 * 3, (2, 2))


def test_displacements_are_scored_alone_and_with_positions(store):
    tested = in_memory(store, declared())
    found = measures_of(1.1 * tested.u, tested.all, tested, declared().learned)
    u = tested.u.double().numpy().reshape(2, 21, 7, 3, 2)
    x = np.stack(np.meshgrid(np.linspace(0, 50, 21), np.linspace(0, 15, 7), indexing="ij"), -1)
    both = np.concatenate([x[None, :, :, None] + u, u], axis=-1)
    size = np.sqrt(np.square(both).sum(axis=(1, 2, 3, 4)))
    wrong = 0.1 * np.sqrt(2 * np.square(u).sum(axis=(1, 2, 3, 4)))
    np.testing.assert_allclose(found["block"], 0.1, rtol=1e-5)
    np.testing.assert_allclose(found["deformed"], wrong / size, rtol=1e-4)
    still = replace(tested, target_channels=tuple(
        replace(channel, moves=False) for channel in tested.target_channels
    ))  # fmt: skip
    assert "deformed" not in measures_of(tested.u, tested.all, still)


def test_times_that_training_sees_are_counted_after_those_that_are_skipped(store):
    some = declared().with_overrides({"task.frames": 3})
    tested = in_memory(store, some)
    by = torch.tensor([1.1, 1.2, 1.5]).repeat_interleave(2)
    found = measures_of(by * tested.u, tested.all, tested, some.learned)
    assert (found["seen"] > 0.1).all()
    assert (found["seen"] < 0.2).all()
    np.testing.assert_allclose(found["unseen"], 0.5, rtol=1e-5)


def test_a_frame_at_rest_has_no_relative_error_and_breaks_no_mean(store):
    whole = in_memory(store, declared().with_overrides({"task.skip": 0}))
    assert not whole.u[..., :2].any()
    score = compute_score(Scaled(whole, 1.1), whole, Map())
    assert list(score.steps) == LATER
    assert [*score.channels][:2] == ["x, t = 0.1", "y, t = 0.1"]
    for errors in (score.errors, score.measures["steps"], score.measures["l1"]):
        np.testing.assert_allclose(errors, 0.1, rtol=1e-5)


@pytest.mark.parametrize("scaling", ["scalar", "pointwise"])
def test_a_channel_of_one_value_is_refused_in_one_line(store, tmp_path, scaling):
    """A single time is left, or the frame at rest is a channel of its own."""
    keys = ("normalization.input", "normalization.target")
    use = "none, or normalization.eps" if scaling == "pointwise" else "none"
    for changes in ({"task.skip": 3}, {"task.kind": "map"}):
        experiment = declared().with_overrides(dict.fromkeys(keys, scaling) | changes)
        with pytest.raises(SchemaError, match=rf"^normalization\.\w+: .* is constant: use {use}$"):
            train(experiment, store, tmp_path / "run", CPU)
    assert not (tmp_path / "run").exists()


def test_the_die_comes_down_on_the_block(store):
    die, u = (functions(open_sealed(store), name, [0, 5]) for name in ("a", "u"))
    above = Above.of(die)
    assert above is not None
    assert Above.of(u) is None
    for frame in range(4):
        outline, place = above.at(1, 0.1 * frame), u.moved(1, 2 * frame).points
        assert outline[:21, 1] == pytest.approx(die.values[1, :, 0, 0] - 0.3 * frame)
        assert place[:, 0, 1].max() == 0
        assert outline[-2:, 1].min() > outline[:-2, 1].max()
    touched = place[:, -1, 1] - np.interp(place[:, -1, 0], outline[:21, 0], outline[:21, 1])
    assert -0.5 < touched.max() < 0.5


def test_a_report_shows_deformed_blocks_under_the_die(made):
    text = (made / "run/report.md").read_text("utf-8")
    pictures = {path.stem for path in (made / "run/pictures").iterdir()}
    assert {"deformed", "error-by-time", "frames", "predictions"} <= pictures
    assert "Points displaced by u under the rigid body" in text
    drawn = (made / "run/pictures/deformed.svg").read_text("utf-8")
    assert all(word in drawn for word in ("best", "worst", "t = 0.3", "truth", "prediction p"))


def test_blocks_are_drawn_where_truth_and_prediction_move_them(store):
    die, u = (functions(open_sealed(store), name, [0, 5]) for name in ("a", "u"))
    truth = replace(u, above=Above.of(die))
    predicted = 1.5 * u.values
    cell = fields.deformed(truth, predicted, {"worst": 1}).axes[2]
    above, block = (patch.get_xy()[:-1] for patch in cell.patches)
    assert truth.above is not None
    np.testing.assert_allclose(above, truth.above.at(1, 0.2))
    channel = u.components["x"][0.2]
    rest = u.domain.points
    there, found = (rest + v[1][..., [channel, channel + 1]] for v in (u.values, predicted))
    sides = there[:, 0], there[:, -1], there[0], there[-1]
    edges = {tuple(point) for side in sides for point in side}
    assert {tuple(point) for point in block} == edges
    assert len(block) == len(edges)
    drawn = [line.get_xydata() for line in cell.lines]
    for side in (found[:, 0], found[:, -1], found[0], found[-1]):
        assert any(np.array_equal(line, side) for line in drawn)


def test_pictures_of_a_store_show_the_die_over_late_frames(store, tmp_path):
    drawn = plot_store(store, None, tmp_path / "blocks.svg").read_text("utf-8")
    assert "x, t = 0.3" in drawn
    assert "x, t = 0<" not in drawn
    assert "height of the die" not in drawn


def test_a_report_says_what_the_solver_says_of_samples_that_are_there(tmp_path):
    recipe = load_recipe("plasticity-quick").with_overrides({"resolution": 21, "samples": 4})
    limit = float(np.sort(recipe.problem.compute(0, range(4))["residual"])[2:].mean())
    strict = recipe.with_overrides({"imbalance": limit})
    store = generate(strict, str(tmp_path / "s"), workers=1, skip_failed=True)
    assert len(store.skipped) == 1
    rows = [text for _, text in report.quality(store)]
    assert any("largest" in text and "mean displacement of the bottom" in text for text in rows)
    assert not any("nan" in text for text in rows)
