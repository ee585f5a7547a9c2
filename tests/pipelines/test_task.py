"""Tasks in experiments: one store is learned from as a map, a rollout and a state at a time."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch

from operators.data import Samples
from operators.registry import build_operator
from operators.training.checkpoint import load_checkpoint
from operators.training.fit import Stopped, read_history
from pdegen.schema import SchemaError
from pipelines.config.experiment import Experiment
from pipelines.runs.data import SolvedAhead, Source
from pipelines.runs.evaluation import evaluate, evaluate_run
from pipelines.runs.training import train
from tests.pipelines.conftest import CPU
from tests.pipelines.test_stream import STREAM

TASKS: dict[str, dict[str, Any]] = {
    "map": {"kind": "map"},
    "both": {"kind": "map", "inputs": ["a", "u"], "targets": ["u"]},
    "rollout": {"kind": "rollout", "history": 1, "steps": 1},
    "through": {"kind": "rollout", "steps": 2, "noise": 0.01, "static": True},
    "forced": {"kind": "rollout", "steps": 2, "teacher_forcing": True},
    "time": {"kind": "time"},
}
CHANNELS = {"map": (1, 3), "both": (4, 3), "rollout": (1, 1), "through": (2, 1), "forced": (1, 1),
            "time": (2, 1)}  # fmt: skip


def declared(store: str, kind: str, **changes: Any) -> Experiment:
    model = {"width": 8, "depth": 1, "modes": 4, "feedforward": 8, "decoder_width": 8}
    plain = Experiment.on_store(store, "galerkin-transformer").model_dump(mode="json")
    content = {**plain, "task": TASKS[kind], "model": {**plain["model"], **model}}
    content["training"] |= {"batch": 4, "epochs": 2, "loss": {"name": "l2"}}
    content["data"] |= changes
    return Experiment.parse(content, kind)


def examples(pairs: Samples, epoch: int | None = None) -> list[bytes]:
    batches = pairs.in_order(4) if epoch is None else pairs.batches(0, epoch, 1)
    return [
        a.numpy().tobytes() + u.numpy().tobytes()
        for batch in batches
        for a, u in zip(batch.a, batch.u, strict=True)
    ]


@pytest.mark.parametrize("kind", TASKS)
def test_resident_and_streamed_samples_give_the_same_examples(trajectories, kind):
    resident, streamed = (
        Source(trajectories, declared(trajectories, kind, reading=reading))
        for reading in ("resident", "streamed")
    )
    train = [source.samples("train", "training", device=CPU) for source in (resident, streamed)]
    assert train[0].channels == train[1].channels == CHANNELS[kind]
    assert examples(train[0]) == examples(train[1])
    epochs = [sorted(examples(pairs, 1)) for pairs in train]
    assert epochs[0] == epochs[1]
    assert len(set(epochs[0])) == len(train[0]) == len(train[1])
    tested = [source.samples("test", device=CPU) for source in (resident, streamed)]
    assert isinstance(tested[0], Samples)
    assert examples(tested[0]) == examples(tested[1])
    assert len(tested[0]) == len(resident.stored("test"))


@pytest.mark.parametrize("kind", TASKS)
def test_solved_samples_give_the_examples_of_the_stored_ones(trajectories, kind):
    overrides = {**STREAM, "data.stream.overrides.times": [0.05, 0.1, 0.15]}
    experiment = declared(trajectories, kind).with_overrides(overrides)
    source = Source(trajectories, experiment)
    train = source.samples("train", "training", device=CPU)
    stored = source.stored("train")
    solved = source._solved(stored, CPU)
    assert isinstance(solved.reader, SolvedAhead)
    learned = experiment.learned
    same = learned.training(solved.with_reader(samples=stored.ids))
    assert examples(same) == examples(learned.training(stored))
    epochs = [sorted(examples(train, epoch)) for epoch in (0, 0, 1)]
    assert epochs[0] == epochs[1]
    assert not set(epochs[0]) & set(epochs[2])
    assert len(epochs[0]) == len(train)


@pytest.mark.parametrize("kind", ["through", "time"])
def test_a_task_is_trained_resumed_and_evaluated_by_step(trajectories, tmp_path, kind):
    experiment = declared(trajectories, kind)
    whole = train(experiment, trajectories, tmp_path / "whole", CPU)
    asked = iter([False] * 5 + [True])
    with pytest.raises(Stopped):
        train(experiment, trajectories, tmp_path / "run", CPU, stop=lambda: next(asked))
    train(experiment, trajectories, tmp_path / "run", CPU, resume=True)
    of = [[(e.loss, e.score) for e in read_history(tmp_path / n)] for n in ("whole", "run")]
    assert of[0] == of[1] == [(e.loss, e.score) for e in whole]
    bits = [load_checkpoint(tmp_path / n / "last.safetensors", build_operator)[0].state_dict()
            for n in ("whole", "run")]  # fmt: skip
    assert all(torch.equal(bits[0][name], bits[1][name]) for name in bits[0])
    (score,) = evaluate_run(experiment, trajectories, tmp_path / "run", CPU)["results"]
    times = Source(trajectories, experiment).stored("test").target_channels
    steps = [c.name for c in times][0 if kind == "time" else 1 :]
    assert list(score["channels"]) == steps
    kept = json.loads((tmp_path / "run/scores.json").read_text())["results"][0]
    assert kept["channels"] == score["channels"]
    low, high = min(score["channels"].values()), max(score["channels"].values())
    assert low <= score["mean"] <= high
    again = evaluate(tmp_path / "run/best.safetensors", trajectories, CPU)
    assert list(again.errors) == score["errors"]


def test_an_experiment_is_parsed_from_its_record(trajectories):
    plain = Experiment.on_store(trajectories, "galerkin-transformer")
    assert Experiment.parse(plain.model_dump(mode="json"), "again") == plain
    assert declared(trajectories, "time") != plain


@pytest.mark.parametrize(
    ("task", "said"),
    [
        ({"kind": "guess"}, "guess"),
        ({"kind": "rollout", "history": 0}, "history"),
        ({"kind": "time", "steps": 2}, "steps"),
        ({"kind": "map", "inputs": []}, "inputs"),
    ],
)
def test_refuses_tasks_that_cannot_be(trajectories, task, said):
    content = Experiment.on_store(trajectories, "fno").model_dump(mode="json")
    with pytest.raises(SchemaError, match=said):
        Experiment.parse({**content, "task": task}, "experiment")
    for key, value in (("noise", {"level": 0.1}), ("training.symmetries", {"shift": True})):
        table, _, name = key.rpartition(".")
        changed = {**content, "task": {"kind": "time"}}
        changed = ({**changed, table: {**content[table], name: value}} if table else
                   {**changed, name: value})  # fmt: skip
        with pytest.raises(
            SchemaError, match=f"{name} .*(is|are) for the task map, the task is time"
        ):
            Experiment.parse(changed, "experiment")
