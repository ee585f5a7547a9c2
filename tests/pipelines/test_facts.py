"""Every fact of a run is told, and each other fact in other words."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from operators.data import AtTime, Block, Rollout
from pdegen.domains import Box
from pipelines.config.experiment import InputNoise
from pipelines.reports import document, report
from pipelines.runs.score import Score


def test_the_task_on_a_trajectory_is_told_with_all_its_settings():
    def said(task):
        return report._in_time(task, "a", "w")

    assert said(Rollout(history=3)) == (
        "the last 3 frames of w → the next one, rolled out from the first ones; trained 1 step of "
        "true frames"
    )
    assert said(Rollout(history=2, steps=5, noise=0.03, static=True, frames=7)) == (
        "the last 2 frames of w beside a → the next one, rolled out from the first ones; trained 5 "
        "steps through its own frames, noise 0.03; trained on the first 7 frames"
    )
    assert "trained 4 steps of true frames" in said(Rollout(steps=4, teacher_forcing=True))
    assert said(Block(history=3)) == "the first 3 frames of w → all later ones at once"
    assert said(AtTime(history=2)) == "the first 2 frames of w and a time t → w at t"
    assert said(AtTime(frames=6)) == "a and a time t → w at t; trained on the first 6 frames"


def test_variables_whose_symbol_is_another_are_named():
    assert report._called({"height": "h", "u": "u", "speed": "v"}) == (
        "; h is the variable height of the store; v is the variable speed of the store"
    )


@pytest.mark.parametrize(
    ("noise", "rows"),
    [
        ({"kind": "ensemble", "level": 0.1, "seed": 3},
         [("Noise on a, b", "ensemble, level 0.1, seed 3; drawn anew in every epoch of training; "
           "frozen in validation and test")]),
        ({"kind": "ensemble", "level": [0.1, 0.5], "fresh": False},
         [("Noise on a, b", "ensemble, level 0.1 0.5, seed 0; each sample has its own level, which "
           "the model is given; drawn once for training; frozen in validation and test")]),
        ({"kind": "relative", "level": 0.2, "on": "targets"},
         [("Noise on u", "relative, level 0.2, seed 0; drawn once for training; none in validation "
           "and test")]),
    ],
    ids=["inputs", "levels", "targets"],
)  # fmt: skip
def test_noise_is_told_with_what_it_is_on(noise, rows):
    def run(of):
        experiment = SimpleNamespace(noise=of, variables=(("a", "b"), "u"))
        return SimpleNamespace(experiment=experiment)

    assert report._noise(run(InputNoise(**noise))) == rows
    assert report._noise(run(None)) == []
    if noise.get("on") == "targets":
        both = report._noise(run(InputNoise(**{**noise, "on": "both"})))
        assert [name for name, _ in both] == ["Noise on a, b", "Noise on u"]
        assert both[1] == rows[0]


def test_the_quality_of_data_leaves_out_skipped_samples():
    values = {"error": np.array([0.1, 9.0, 0.2, 0.4, 0.7]), "mass": np.array([5, 1, 4, 2, 3.0])}
    roles = {"error": ("quality", ""), "mass": ("quality", "lost mass"), "u": ("target", "u")}
    label = SimpleNamespace(relative_l2=[0.01, 0.03, 0.09], reference="a finer solve")
    store = SimpleNamespace(
        samples=5, skipped=[1], variables=list(roles), values=values.get,
        arrays={name: SimpleNamespace(metadata=SimpleNamespace(role=role, long_name=words))
                for name, (role, words) in roles.items()},
        metadata=SimpleNamespace(label_error=label),
    )  # fmt: skip
    assert report.quality(store) == [
        ("Label error", "median 3.00e-1, worst 7.00e-1 (the solver's own estimate)"),
        ("Quality of the data", "median 3.50, largest 5.00 (lost mass)"),
        ("Label error", "relative L², median 3.00e-2, worst 9.00e-2 of 3 samples, against a finer "
         "solve"),
    ]  # fmt: skip
    store.metadata.label_error = None
    assert len(report.quality(store)) == 2


def a_run(samples=None, stream=None, epoch_samples=None, batch=8, epochs=3) -> SimpleNamespace:
    data = SimpleNamespace(samples=samples, stream=stream, epoch_samples=epoch_samples)
    experiment = SimpleNamespace(data=data, training=SimpleNamespace(batch=batch))
    store = SimpleNamespace(samples_in=lambda split: {"train": 30}[split])
    return SimpleNamespace(experiment=experiment, store=store, history=range(epochs))


def a_stream(sampling="random", **overrides) -> SimpleNamespace:
    return SimpleNamespace(
        recipe="burgers", overrides=overrides, sampling=sampling, coarse={"resolution": 64}
    )


def test_samples_of_a_stream_are_counted_in_whole_batches():
    assert report.distinct(a_run()) == 30
    assert report.distinct(a_run(samples=12)) == 12
    assert report.distinct(a_run(stream=a_stream())) == 3 * 24
    assert report.distinct(a_run(stream=a_stream(), epoch_samples=20, batch=6)) == 3 * 18


def test_a_stream_is_told_with_its_recipe_and_how_it_is_drawn():
    assert report._stream(a_run()) == []
    assert report._stream(a_run(stream=a_stream())) == [
        ("Training samples", "of burgers, 72 solved during training, each used once")
    ]
    assert report._stream(a_run(stream=a_stream("tail", seed=5), epochs=200)) == [
        ("Training samples", "of burgers (seed 5), 4,800 solved during training, each used once, "
         "drawn for their errors against cheap solutions (resolution 64)")
    ]  # fmt: skip
    assert report._trained_on(a_run(samples=12)) == "the first 12 of 30 samples, "
    assert report._trained_on(a_run(stream=a_stream())) == "samples "


# words


def test_durations_have_two_units_at_most():
    assert [document.duration(s) for s in (0.01234, 59.94, 60, 3599.4, 3600, 9000)] == [
        "0.0123 s", "59.9 s", "1 min 0 s", "59 min 59 s", "1 h 0 min", "2 h 30 min",
    ]  # fmt: skip


def test_a_deviation_has_the_exponent_and_the_decimals_of_its_mean():
    assert document.plus_minus("2.00e-3", 0.00042) == "2.00e-3 ± 0.42e-3"
    assert document.plus_minus("123", 0.4) == "123 ± 0.4"
    assert document.plus_minus("0.500", 0.0) == "0.500 ± 0.000"
    assert document.plus_minus("1.20e1", 3.0) == "1.20e1 ± 0.30e1"


def test_numbers_keep_all_their_digits_for_files():
    for write in (document.scientific, document.significant):
        assert write(0.123456789).full == "0.123456789"
    assert [document.scientific(x) for x in (1234.0, 1e-12, 3.14)] == ["1.23e3", "1.00e-12", "3.14"]
    assert [document.significant(x) for x in (float("inf"), 1234.5, 1e-9)] == [
        "inf", "1.23e3", "1.00e-9",
    ]  # fmt: skip


def test_settings_are_told_in_words():
    assert document.in_words(True) == "yes"
    assert document.in_words(False) == "no"
    assert document.in_words([1.5, 2.0, 3.0, 4.0]) == "1.5 2 3 4"
    assert document.in_words([1, 2, 3, 4, 7]) == "1 … 7 (5 values)"
    assert document.in_words({"law": "normal", "name": "n", "mean": 0.1234567}) == (
        "normal n (mean 0.123457)"
    )
    assert document.in_words({"method": "direct"}) == "direct"
    assert document.settings({"a_b": None, "c": "d"}) == "a b None, c d"
    assert document.how_read("streamed, 3 workers") == "read ahead from disk, 3 workers"
    assert document.how_read("other") == "other"
    assert document.points(9, Box.nodal(17, 33)) == "9 x 17"


# scores


def test_the_axis_of_grids_says_along_which_axis_points_are_counted():
    assert report._axis(Box.cell(16)) == "points"
    assert report._axis(Box.cell(16, 16)) == "points along each axis"
    assert report._axis(Box.cell(16, 8)) == "points along the first axis"


def test_the_sentence_about_grids_names_only_those_without_training():
    assert report.grids([16, 64], {16, 32, 128}) == (
        "Trained on n = 16 or 64 points only. On n = 32, 128 points the same weights are evaluated "
        "without further training (zero-shot)."
    )


def a_score(errors, resolution=16, **words) -> Score:
    return Score("best", 1, "test", resolution, tuple(range(len(errors))), errors, 1.0, **words)


def test_tables_of_scores_have_trivial_predictions_of_their_grid_alone():
    main = a_score(
        (0.1, 0.3), channels={"u": 0.15, "v": 0.25}, steps={"t = 1": 0.5},
        measures={"l1": (0.1, 0.2, 0.6), "h1": (0.3, float("nan"), 0.5)},
    )  # fmt: skip
    mean = a_score((0.7, 0.9), channels={"u": 0.8, "v": 0.95}, steps={"t = 1": 0.6},
                   measures={"l1": (0.9, 0.7, 0.2)})  # fmt: skip
    pairs = SimpleNamespace(target_channels=())
    run = SimpleNamespace(main=main, checkpoint="best", pairs=pairs,
                          trivial={"mean": mean, "identity": a_score((1.0, 2.0), 32)})  # fmt: skip
    assert report._on_one_grid(run) == {"model (best)": main, "mean": mean}
    (table,) = report._further(run)
    assert table.header == ("measure", "model (best)", "mean")
    assert [row[1:] for row in table.rows] == [
        ("3.00e-1", "6.00e-1"), ("2.00e-1", "7.00e-1"), ("4.00e-1", ""), ("4.00e-1", ""),
    ]  # fmt: skip
    channels, times = report._by_part(run)
    assert (channels.name, channels.header[0]) == ("by channel", "channel")
    assert channels.rows == [("u", "1.50e-1", "8.00e-1"), ("v", "2.50e-1", "9.50e-1")]
    assert (times.name, times.rows) == ("by time", [("t = 1", "5.00e-1", "6.00e-1")])
