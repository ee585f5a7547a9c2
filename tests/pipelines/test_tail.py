"""Streams whose samples are drawn by predictions of their errors."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from operators.data.samples import inclusion
from operators.registry import build_operator
from operators.training import fit
from operators.training.checkpoint import load_checkpoint, load_state
from operators.training.fit import Stopped
from pdegen.equations.base import SampleError
from pdegen.generation.generate import compute
from pdegen.schema import SchemaError
from pipelines.config.experiment import CANDIDATES, Stream, load_experiment
from pipelines.runs import data
from pipelines.runs.data import Source, TailDraw, first_number, solved_pairs, tail_draw
from pipelines.runs.training import train
from tests.pipelines.command import history
from tests.pipelines.conftest import CPU, DATA, SMALL

COARSE = {"solver.resolution": 32, "initial.modes": 15, "solver.largest_error": 1.0}
STREAM = {"data.stream.recipe": "burgers-quick"} | {
    f"data.stream.overrides.{key}": value for key, value in DATA.items() if "." in key
}
TAIL = {"data.stream.sampling": "tail"} | {
    f"data.stream.coarse.{key}": value for key, value in COARSE.items()
}
SETS = {**SMALL, **STREAM, "training.epochs": 3, "data.epoch_samples": 16, "training.batch": 4}


@pytest.fixture(scope="module")
def experiment():
    return load_experiment("burgers-quick").with_overrides({**SETS, **TAIL})


@pytest.fixture(scope="module")
def pairs(experiment, store):
    return Source(store, experiment).samples("train", "training", device=CPU)


@pytest.fixture(scope="module")
def draw(experiment, pairs) -> TailDraw:
    made = tail_draw(experiment, pairs, 1)
    assert made is not None
    return made


@pytest.fixture(scope="module")
def trained(experiment, store, tmp_path_factory):
    folder = tmp_path_factory.mktemp("tail") / "run"
    train(experiment, store, folder, CPU)
    return folder


@pytest.fixture(scope="module")
def predictor(trained):
    return load_checkpoint(trained / "last.safetensors", build_operator)[0]


def test_candidates_follow_one_another_and_are_in_no_store(draw, predictor):
    first, total = first_number(0, draw.candidates.reader.recipe.problem), 16 * CANDIDATES
    for epoch in (0, 1, 2):
        numbers = draw(predictor, epoch).numbers.tolist()
        assert len(set(numbers)) == len(numbers) == 16
        assert min(numbers) >= first + epoch * total
        assert max(numbers) < first + (epoch + 1) * total
    assert draw(predictor, 0).numbers.tolist() == [*range(first, first + 16)]


def test_probabilities_follow_the_errors_against_cheap_solutions(draw, predictor, experiment):
    drawn, total = draw(predictor, 1), 16 * CANDIDATES
    recipe = experiment.data.stream.load_recipe().with_overrides(COARSE)
    first = first_number(0, recipe.problem) + total
    values = compute(recipe, range(first, first + total))
    a, u = (torch.from_numpy(values[name][:, ::2, None].copy()) for name in "au")
    with torch.no_grad():
        p = predictor(a, draw.candidates.x)
    errors = ((p - u).norm(dim=1) / u.norm(dim=1))[:, 0].double()
    expected = inclusion(errors**3, 16, 0.1)
    torch.testing.assert_close(
        drawn.probabilities, expected[drawn.numbers - first], rtol=1e-4, atol=0
    )


def test_batches_have_the_drawn_samples_in_their_order(draw, predictor, pairs, experiment):
    drawn = draw(predictor, 1)
    recipe = experiment.data.stream.load_recipe()
    batches = list(pairs.with_reader(drawn=drawn.numbers).batches(0, 1, 4, first=1))
    expected = [compute(recipe, range(n, n + 1))["u"][0, ::2] for n in drawn.numbers[4:].tolist()]
    found = torch.cat([batch.u[..., 0] for batch in batches])
    np.testing.assert_array_equal(found, np.stack(expected))


def test_a_stopped_training_goes_on_to_the_same_bits(experiment, store, trained, tmp_path):
    asked, folder = iter([False] * 5 + [True]), tmp_path / "run"
    with pytest.raises(Stopped):
        train(experiment, store, folder, CPU, stop=lambda: next(asked))
    drawn = load_state(folder / "state.pt", CPU)["drawn"]
    assert len(drawn["numbers"]) == len(drawn["probabilities"]) == 16
    assert bool(((drawn["probabilities"] > 0) & (drawn["probabilities"] <= 1)).all())
    assert len(drawn["probabilities"].unique()) > 1
    train(experiment, store, folder, CPU, resume=True)
    assert (folder / "last.safetensors").read_bytes() == (trained / "last.safetensors").read_bytes()
    assert history(folder) == history(trained)


def test_the_first_epoch_is_that_of_a_uniform_stream(store, trained, tmp_path):
    uniform = load_experiment("burgers-quick").with_overrides(SETS)
    train(uniform, store, tmp_path / "run", CPU)
    losses = [
        [json.loads(line)["loss"] for line in (folder / "history.jsonl").read_text().splitlines()]
        for folder in (tmp_path / "run", trained)
    ]
    assert losses[0][0] == losses[1][0]
    assert losses[0][1:] != losses[1][1:]


def test_records_of_uniform_streams_are_those_of_earlier_versions():
    stream = Stream.parse({"recipe": "burgers-quick"}, "stream")
    assert stream.model_dump(mode="json") == {"recipe": "burgers-quick", "overrides": {}}


def test_other_numbers_of_candidates_are_drawn_from_and_recorded(experiment, pairs, predictor):
    assert experiment.data.stream.model_dump(mode="json")["candidates"] == CANDIDATES
    changed = experiment.with_overrides({"data.stream.candidates": 12})
    assert changed.data.stream.model_dump(mode="json")["candidates"] == 12
    draw = tail_draw(changed, pairs, 1)
    assert draw is not None
    first = draw.candidates.ids[0]
    numbers = draw(predictor, 1).numbers.tolist()
    assert len(numbers) == 16
    assert first + 12 * 16 <= min(numbers) < first + 16 * 16
    assert first + 20 * 16 <= max(numbers) < first + 24 * 16


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data.stream.sampling": "tail"}, 'sampling = "tail" predicts errors with cheap solut'),
        ({"data.stream.sampling": "tails"}, "sampling"),
        ({"data.stream.coarse.solver.resolution": 32}, 'coarse is for sampling = "tail"'),
        ({**TAIL, "data.stream.candidates": 1}, "candidates: must be at least 2, got 1"),
        ({**TAIL, "data.stream.coarse.solver.resolutoin": 32}, "unknown key 'solver.resolutoin'"),
        ({**TAIL, "data.stream.coarse.problem.resolution": 16}, "other points or components"),
        ({**TAIL, "data.stream.coarse.times": [0.1, 0.2]}, "other points or components"),
        (
            {**TAIL, "data.stream.coarse.seed": 5},
            "another problem: change resolution, solver and modes",
        ),
        ({**TAIL, "data.stream.coarse.viscosity": 1.0}, "another problem"),
    ],
)
def test_an_impossible_table_is_refused_in_one_line(refused, store, changes, message):
    words = [f"{key}={json.dumps(value)}" for key, value in {**SETS, **changes}.items()]
    sets = [word for each in words for word in ("--set", each)]
    line = refused("train", "burgers-quick", *sets, "--data", store, "--out", "out")
    assert message in line


def test_trajectories_are_refused(experiment):
    symmetries = {f"training.symmetries.{name}": False for name in ("shift", "reflection")}
    task = experiment.with_overrides({"task.kind": "time", **symmetries})
    with pytest.raises(SchemaError, match="is for the task map, the task is time"):
        task.check_applies(task.data.load_recipe().problem.domain, 10, "here")


@pytest.mark.parametrize(
    ("name", "coarse"),
    [
        ("burgers-quick", {"solver.resolution": 512, "initial.modes": 255}),
        ("darcy-quick", {"solver.refinement": 1}),
    ],
)
def test_a_recipe_with_a_remark_has_cheap_solutions(name, coarse):
    stream = Stream.parse({"recipe": name, "sampling": "tail", "coarse": coarse}, "stream")
    assert stream.load_recipe().remark
    assert stream.load_coarse().problem != stream.load_recipe().problem


def test_equal_errors_are_drawn_otherwise_in_each_epoch_and_seed(draw, predictor, monkeypatch):
    monkeypatch.setattr(data, "scores", lambda predictor, pairs: torch.ones(len(pairs.ids)))
    other = replace(draw, seed=draw.seed + 1)
    numbers = [
        (each(predictor, epoch).numbers - each.candidates.ids[0]) % (16 * CANDIDATES)
        for each in (draw, other)
        for epoch in (1, 2)
    ]
    assert len({tuple(sorted(drawn.tolist())) for drawn in numbers}) == 4


def test_a_candidate_without_a_relative_error_is_drawn_like_one_without_error(
    draw, predictor, monkeypatch
):
    """The relative error of the solution 0 is not a number."""
    errors = torch.ones(16 * CANDIDATES)
    errors[3], errors[5] = torch.nan, torch.inf
    monkeypatch.setattr(data, "scores", lambda predictor, pairs: errors)
    drawn = draw(predictor, 1)
    assert bool(drawn.probabilities.isfinite().all())
    assert float(drawn.probabilities.sum()) < 16


def test_candidates_are_scored_by_the_averaged_weights(experiment, store, tmp_path, monkeypatch):
    scored, averages = [], []
    draw, average = TailDraw.__call__, fit._average

    def watched_draw(self, predictor, epoch):
        scored.append(predictor)
        return draw(self, predictor, epoch)

    def watched_average(averaged, current, decay):
        averages.append(averaged)
        average(averaged, current, decay)

    monkeypatch.setattr(TailDraw, "__call__", watched_draw)
    monkeypatch.setattr(fit, "_average", watched_average)
    averaged = experiment.with_overrides({"training.average": 0.9, "training.epochs": 2})
    train(averaged, store, tmp_path / "run", CPU)
    assert len(scored) == 2
    assert all(predictor is averages[0] for predictor in scored)


def test_noise_on_targets_is_not_in_the_cheap_solutions(experiment, store):
    noisy = experiment.with_overrides({"noise": {"level": 0.5, "on": "targets"}})
    pairs = Source(store, noisy).samples("train", "training", device=CPU)
    made = tail_draw(noisy, pairs, 1)
    assert made is not None
    assert made.candidates.reader.target_noise is None


def test_several_processes_and_too_many_candidates_are_refused(experiment, pairs):
    with pytest.raises(SchemaError, match="is for training in one process, got 2"):
        tail_draw(experiment, pairs, 2)
    many = experiment.with_overrides({"training.epochs": 2**26})
    with pytest.raises(SchemaError, match=r"2\^32 samples and candidates .* epochs of 128"):
        solved_pairs(many, 16, CPU)
    uniform = load_experiment("burgers-quick").with_overrides({**SETS, "training.epochs": 2**26})
    solved_pairs(uniform, 16, CPU)


def test_a_failing_cheap_solution_names_its_table(draw, predictor, monkeypatch):
    def fails(self, seed, samples, on=None):
        raise SampleError(samples[0], "by hand")

    monkeypatch.setattr(type(draw.candidates.reader.recipe.problem), "solve_in_blocks", fails)
    with pytest.raises(SampleError, match=r"sample \d+: by hand; .* change data\.stream\.coarse$"):
        draw(predictor, 1)


def test_drawn_samples_have_the_noise_of_their_numbers(store):
    noise = {"noise": {"level": 0.5, "on": "both"}}
    experiment = load_experiment("burgers-quick").with_overrides({**SETS, **TAIL, **noise})
    pairs = Source(store, experiment).samples("train", "training", device=CPU)
    whole, rows = next(pairs.in_order(16)), torch.tensor([9, 2, 5, 0])
    drawn = pairs.with_reader(drawn=torch.from_numpy(pairs.ids)[rows])
    batch = next(drawn.batches(0, 1, 4))
    torch.testing.assert_close(batch.a, whole.a[rows])
    torch.testing.assert_close(batch.u, whole.u[rows])
    clean = pairs.with_reader(noise=None, target_noise=None)
    assert not torch.allclose(next(clean.in_order(16)).u[rows], batch.u, atol=0.01)
    assert not torch.allclose(next(clean.in_order(16)).a[rows], batch.a, atol=0.01)
