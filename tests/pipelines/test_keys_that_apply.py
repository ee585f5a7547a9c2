"""Each key of an experiment changes what is built of it, or is refused where it changes nothing."""

from __future__ import annotations

import hashlib
import re
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

from operators.data import DataError, TaskError
from pdegen.domains import Box, Curvilinear
from pdegen.generation.generate import generate
from pdegen.recipe import load_recipe
from pdegen.schema import SchemaError
from pipelines.config.benchmark import Benchmark
from pipelines.config.experiment import Experiment
from pipelines.config.keys import keys_of
from pipelines.runs.checks import check_applies, check_symmetries
from pipelines.runs.data import Source, tail_draw
from pipelines.runs.predictions import experiment_key
from pipelines.runs.residual import WithResidual, with_residual
from pipelines.studies.samples import samples_study
from tests.pipelines.shapes import a_store

CPU = torch.device("cpu")
TIMES = (0.0, 1.0, 2.0, 3.0)
RECIPE = {"problem.resolution": 16, "problem.solver.resolution": 32, "problem.initial.modes": 7}
SIZES = {"samples": 28, "shard": 28, "splits.train": 8, "splits.validation": 18, "splits.test": 2}
BASE: dict[str, Any] = {
    "name": "keys",
    "summary": "",
    "resolutions": [16],
    "data": {"recipe": "burgers-quick", "resolution": 16, "overrides": {**RECIPE, **SIZES}},
    "model": {"name": "fno", "width": 4, "depth": 1, "modes": 3},
    "training": {"epochs": 3, "batch": 4, "loss": {"name": "h1"}},
    "normalization": {"input": "scalar", "target": "scalar"},
}
DARCY = {"problem.resolution": 16, "problem.field.modes": 15, "samples": 20, "shard": 20,
         "splits.train": 16, "splits.validation": 2, "splits.test": 2}  # fmt: skip
STREAM = {"recipe": "burgers-quick", "overrides": RECIPE}
COARSE = {"problem.initial.modes": 3}
# by name: the store, and what the experiment says beside `BASE`
SETTINGS: dict[str, tuple[str, dict[str, Any]]] = {
    "map": ("circle", {}),
    "map of names": ("circle", {"task": {"kind": "map", "inputs": ["a"], "targets": ["u"]}}),
    "noise": ("circle", {"noise": {"level": 0.1}}),
    "targets": ("circle", {"noise": {"level": 0.1, "on": "targets"}}),
    "correlated": ("circle", {"noise": {"kind": "correlated", "level": 0.1}}),
    "sensors": ("circle", {"noise": {"kind": "sensors", "level": 0.1}}),
    "student": ("circle", {"noise": {"kind": "student", "level": 0.1}}),
    "impulse": ("circle", {"noise": {"kind": "impulse", "level": 0.1, "share": 0.5}}),
    "drift": ("circle", {"noise": {"kind": "drift", "level": 0.1}}),
    "stream": ("circle", {"data": {"stream": STREAM}, "noise": {"level": 0.1}}),
    "tail": ("circle", {"data": {"stream": {**STREAM, "sampling": "tail", "coarse": COARSE}}}),
    "pointwise": ("circle", {"normalization": {"input": "pointwise"}}),
    "soap": ("circle", {"training": {"optimizer": {"name": "soap"}}}),
    "sgd": ("circle", {"training": {"optimizer": {"name": "sgd"}}}),
    "cosine": ("circle", {"training": {"schedule": {"name": "cosine"}}}),
    "steps": ("circle", {"training": {"schedule": {"name": "steps", "every": 1}}}),
    "huber": ("circle", {"training": {"loss": {"name": "huber"}}}),
    "squared": ("circle", {"training": {"loss": {"name": "squared-h1"}}}),
    "flow": ("circle", {"training": {"loss": {"name": "flow"}}}),
    "l2": ("circle", {"training": {"loss": {"name": "l2"}}}),
    "square": ("square", {"training": {"loss": {"name": "weighted-h1"}}}),
    "mesh": ("mesh", {"training": {"loss": {"name": "l2"}}}),
    "rollout": ("times", {"task": {"kind": "rollout"}}),
    "two steps": ("times", {"task": {"kind": "rollout", "steps": 2}}),
    "static": ("times", {"task": {"kind": "rollout", "static": True}}),
    "time": ("times", {"task": {"kind": "time"}}),
    "frames": ("times", {"task": {"kind": "time", "history": 1}}),
    "block": ("times", {"task": {"kind": "block"}}),
    "torus": ("torus", {"task": {"kind": "block"}}),
    "residual": (
        "darcy",
        {
            "data": {"recipe": "darcy-quick", "samples": 8, "overrides": DARCY},
            "training": {"loss": {"name": "l2"}, "residual": {"aim": 1.0}},
        },
    ),
    "symmetric": ("square", {"training": {"symmetries": {"square": True}}}),
}
# by the name of a setting: keys, each with another value
EACH: dict[str, list[tuple[str, Any]]] = {
    "map": [
        ("resolutions", [8]), ("data.resolution", 8), ("data.resolutions", [8, 16]),
        ("data.input", "u"), ("data.target", "a"),
        ("data.reading", "streamed"), ("data.samples", 6), ("data.epoch_samples", 16),
        ("training.protocol", "published"), ("training.epochs", 4), ("training.batch", 2),
        ("training.lr", 0.5), ("training.schedule.name", "constant"),
        ("training.schedule.warmup", 0.5), ("training.schedule.div", 9.0),
        ("training.schedule.final_div", 9.0), ("training.clip", 0.5), ("training.seed", 7),
        ("training.average", 0.5), ("training.loss.name", "l1"), ("training.loss.gamma", 0.3),
        ("training.loss.periodic", False), ("training.optimizer.name", "soap"),
        ("training.optimizer.weight_decay", 0.5), ("training.warmup", 0.5),
        ("training.symmetries.shift", True), ("training.symmetries.reflection", True),
        ("training.start", "weights.safetensors"), ("training.conformal", True),
        ("normalization.input", "none"),
        ("normalization.target", "pointwise"), ("noise", {"level": 0.1}),
    ],
    "square": [
        ("data.target_resolution", 4), ("training.loss.gamma", 0.3),
        ("training.loss.published", True), ("training.symmetries.square", True),
    ],
    "stream": [
        ("data.stream.overrides.seed", 5), ("data.epoch_samples", 16), ("noise.seed", 3),
        ("data.resolutions", [8, 16]),
    ],
    "tail": [
        ("data.stream.coarse", {"problem.initial.modes": 2}), ("data.stream.candidates", 12),
    ],
    "mesh": [("training.weights", "points")],
    "torus": [("training.symmetries.diagonal", True), ("training.symmetries.wave", 2)],
    "symmetric": [("training.symmetries.mean", True)],
    "residual": [("training.residual.weight", 0.5), ("training.residual.unlabelled", 8)],
    "soap": [
        ("training.optimizer.beta1", 0.5), ("training.optimizer.beta2", 0.5),
        ("training.optimizer.every", 1),
    ],
    "pointwise": [("normalization.eps", 0.5)],
    "huber": [("training.loss.delta", 0.5)],
    "squared": [("training.loss.gamma", 0.5), ("training.loss.weighted", True)],
    "flow": [("training.loss.members", 3), ("training.loss.steps", 2)],
    "sgd": [
        ("training.optimizer.momentum", 0.5), ("training.optimizer.nesterov", True),
        ("training.optimizer.weight_decay", 0.5),
    ],
    "cosine": [("training.schedule.warmup", 0.5), ("training.schedule.end", 0.5)],
    "steps": [("training.schedule.factor", 0.25), ("training.schedule.every", 2)],
    "noise": [
        ("noise.level", 0.2), ("noise.level", [0.0, 0.1]), ("noise.seed", 3),
        ("noise.fresh", False), ("noise.kind", "relative"), ("noise.on", "targets"),
        ("noise.on", "both"), ("noise.by", "point"),
    ],
    "targets": [("noise.level", 0.2), ("noise.on", "both")],
    "correlated": [("noise.length", 0.3)],
    "sensors": [("noise.fraction", 0.5)],
    "student": [("noise.freedom", 4.0)],
    "impulse": [("noise.share", 0.9), ("noise.size", 3.0), ("noise.size_unit", "absolute")],
    "drift": [("noise.base", 0.2)],
    "map of names": [("task.inputs", ["u"]), ("task.targets", ["a"]), ("task.parameters", True)],
    "rollout": [
        ("task.kind", "block"), ("task.history", 2), ("task.steps", 2), ("task.noise", 0.1),
        ("task.static", True), ("task.parameters", True), ("task.frames", 3),
    ],
    "two steps": [("task.teacher_forcing", True), ("data.resolutions", [8, 16])],
    "static": [("data.input", "b")],
    "time": [
        ("data.input", "b"), ("task.history", 1), ("task.skip", 1), ("task.frames", 3),
        ("task.parameters", True),
    ],
    "block": [("task.history", 2), ("task.parameters", True)],
}  # fmt: skip
CHANGES: list[tuple[str, dict[str, Any]]] = [
    *((setting, {key: value}) for setting, each in EACH.items() for key, value in each),
    ("map", {"data.stream.recipe": "burgers-quick",
             **{f"data.stream.overrides.{key}": value for key, value in RECIPE.items()}}),
    ("stream", {"data.stream.sampling": "tail", "data.stream.coarse": COARSE}),
]  # fmt: skip
REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("map", {"data.recipe": "burgers-shock"}, "is not a store of burgers-shock with"),
    ("map", {"data.overrides.seed": 5}, "is not a store of burgers-quick with .*'seed': 5"),
    ("map", {"data.resolutions": [16]}, "data.resolutions: must have 2 or more values, got"),
    ("map", {"data.resolutions": [8, 8]}, r"resolutions must differ, got \[8, 8\]"),
    ("map", {"data.resolutions": [7, 16]}, "resolution 7 is not a subsample of the 16 periodic"),
    (
        "map",
        {"data.resolutions": [8, 16], "data.resolution": 8},
        "needs either resolution or resolutions, got both",
    ),
    (
        "noise",
        {"data.resolutions": [8, 16], "noise.kind": "sensors"},
        "'sensors' chooses points of one grid and is not for data.resolutions",
    ),
    ("mesh", {"data.resolutions": [8, 16]}, "need a grid of a box, .* has a curvilinear domain"),
    ("map", {"data.target_resolution": 8}, "target_resolution averages cells"),
    ("map", {"data.stream.overrides.seed": 5}, "needs a stream"),
    ("stream", {"data.samples": 4}, "samples is for stored samples"),
    ("stream", {"data.reading": "streamed"}, "reading is for stored samples"),
    ("stream", {"data.stream.coarse": COARSE}, 'coarse is for sampling = "tail"'),
    ("stream", {"data.stream.candidates": 12}, 'candidates is for sampling = "tail"'),
    ("stream", {"noise.fresh": False}, "noise.fresh is for stored samples, the stream of"),
    ("map of names", {"data.input": "u"}, "data.input has no effect: task.inputs names the var"),
    ("map of names", {"data.target": "a"}, "data.target has no effect: task.targets names the"),
    (
        "rollout",
        {"data.input": "b"},
        "data.input has no effect: the task rollout starts from frames",
    ),
    ("frames", {"data.input": "b"}, "data.input has no effect: the task time starts from frames"),
    ("block", {"data.input": "b"}, "data.input has no effect: the task block starts from frames"),
    ("rollout", {"task.teacher_forcing": True}, "task.teacher_forcing needs several frames"),
    ("map", {"training.weights": "points"}, "training.weights is for meshes and clouds, .* grid"),
    ("l2", {"training.loss.gamma": 0.3}, "does not apply to l2"),
    ("mesh", {"training.conformal": True}, "training.conformal needs the protocol .* 18 validati"),
    (
        "map",
        {"training.conformal": True, "training.protocol": "published"},
        "has 18 and the protocol published",
    ),
    ("map", {"training.loss.published": True}, "does not apply to h1"),
    ("map", {"training.optimizer.every": 3}, "does not apply to adam"),
    ("steps", {"training.warmup": 0.5}, "key of the schedule 1cycle, not of steps"),
    ("map", {"training.optimizer.beta1": 0.5}, "does not apply to adam"),
    ("map", {"normalization.eps": 1.0}, "eps is for pointwise scaling"),
    (
        "noise",
        {"noise.on": "targets", "noise.fresh": False},
        "noise.fresh is for noise on inputs; ",
    ),
    ("noise", {"noise.length": 0.2}, "'length' does not apply to ensemble"),
    ("noise", {"noise.fraction": 0.2}, "'fraction' does not apply to ensemble"),
    ("noise", {"noise.points": "diffusionpde"}, "'points' does not apply to ensemble"),
    ("sensors", {"noise.points": "diffusionpd"}, "unknown sensors 'diffusionpd'"),
    (
        "sensors",
        {"noise.points": "diffusionpde"},
        "sensors 'diffusionpde' are points of 128 x 128, got 16",
    ),
    ("map", {"task.steps": 2}, "task"),
    ("block", {"task.static": True}, "does not apply to block"),
    (
        "block",
        {"training.symmetries.shift": True},
        "symmetries other than the shifts of diagonal and wave are for the task map, the task is",
    ),
    (
        "map",
        {"training.symmetries.shift": True, "training.symmetries.diagonal": True},
        "choose one kind of symmetries, not shift or reflection and diagonal",
    ),
    ("square", {"training.symmetries.mean": True}, "of the square: set square = true"),
    ("frames", {"task.parameters": True}, "the samples have no parameters"),
]


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    """By what they are: with a second input, b, where there are times."""
    folder = tmp_path_factory.mktemp("stores")
    points = Box.nodal(16, 8).points
    bent = Curvilinear.of(points**2 + 0.3 * points[..., ::-1])
    wave = Box.periodic(16)
    recipe = load_recipe("burgers-quick").with_overrides({**RECIPE, **SIZES})
    return {
        "circle": generate(recipe, str(folder / "circle"), workers=1).url,
        "numbered": a_store(str(folder / "numbered"), wave, times=TIMES, parameters=2),
        "square": a_store(str(folder / "square"), Box.cell(16, 16)),
        "darcy": generate(
            load_recipe("darcy-quick").with_overrides(DARCY), str(folder / "darcy"), workers=1
        ).url,
        "mesh": a_store(str(folder / "mesh"), bent),
        "times": a_store(str(folder / "times"), wave, times=TIMES, inputs=("b",)),
        "torus": a_store(str(folder / "torus"), Box.periodic(16, 16), times=TIMES),
    }


def declared(setting: str) -> Experiment:
    content = dict(BASE)
    for table, own in SETTINGS[setting][1].items():
        content[table] = {**content.get(table, {}), **own}
    return Experiment.parse(content, setting)


def digest(*tensors: Any) -> str:
    found = hashlib.sha256()
    for tensor in tensors:
        found.update(b"" if tensor is None else np.ascontiguousarray(tensor.detach()).tobytes())
    return found.hexdigest()


def built(experiment: Experiment, url: str) -> dict[str, Any]:
    """All that a training and an evaluation begin with."""
    source = Source(url, experiment)
    pairs, selection = (
        source.samples("train", "training", device=CPU),
        source.samples(experiment.training.selection_split, "selection", device=CPU),
    )
    settings, task = experiment.training.settings(), source.task
    check_symmetries(source, settings.augment)
    check_applies(source)
    weight = torch.nn.Parameter(torch.eye(3) + 0.1)
    optimizer = settings.optimizer([weight], settings.lr)
    schedule = settings.scheduled(optimizer, settings.steps(len(pairs)))
    rates, seed = [], settings.seed
    for step in range(min(6, settings.steps(len(pairs)))):
        weight.grad = torch.arange(9.0).reshape(3, 3).roll(step) + step
        optimizer.step()
        rates.append(schedule.rate)
        schedule.step()
    batches = [batch for epoch in (0, 1) for batch in pairs.batches(seed, epoch, settings.batch)]
    draw = tail_draw(experiment, pairs, 1)
    candidates = [] if draw is None else [*draw.candidates.in_order(8)]
    normalizers = experiment.normalization.of(pairs)
    tested = [
        source.samples("test", noise=None, resolution=n).first() for n in experiment.resolutions
    ]
    loss, further = with_residual(source, pairs, settings, 1, lambda line: None)
    weight_of = loss.loss.weight if isinstance(loss.loss, WithResidual) else None
    return {
        "residual": (weight_of, None if further is None else digest(further.a)),
        "batches": [digest(b.a, b.u) for b in batches],
        "candidates": [digest(b.a, b.u) for b in candidates],
        "weights": (digest(pairs.weight), pairs.channels),
        "selection": digest(*(x for part in selection.in_order(8) for x in (part.a, part.u))),
        "tested": [digest(one.a, one.u) for one in tested],
        "steps": (digest(weight), rates, settings.clip, settings.average, seed),
        "loss": (type(settings.loss), vars(settings.loss)),
        "augment": (type(settings.augment), vars(settings.augment or object)),
        "normalizers": [digest(*one.state_dict().values()) for one in normalizers],
        "task": task,
        "start": experiment.training.start,
    }


@cache
def before(setting: str, url: str) -> dict[str, Any]:
    return built(declared(setting), url)


def place(stores: dict[str, str], setting: str, change: dict[str, Any]) -> str:
    numbered = change.get("task.parameters") and setting != "frames"
    return stores["numbered" if numbered else SETTINGS[setting][0]]


@pytest.mark.parametrize(("setting", "change"), CHANGES, ids=str)
def test_a_key_changes_what_is_built_and_its_key(stores, setting, change):
    url = place(stores, setting, change)
    experiment = declared(setting)
    changed = experiment.on(url, change)
    assert built(changed, url) != before(setting, url)
    assert experiment_key(changed, url) != experiment_key(experiment.on(url, {}), url)


@pytest.mark.parametrize(("setting", "change", "message"), REFUSED, ids=str)
def test_a_key_is_refused_where_it_changes_nothing(stores, setting, change, message):
    url = place(stores, setting, change)
    with pytest.raises((SchemaError, DataError, TaskError), match=message):
        built(declared(setting).on(url, change), url)


def test_every_key_of_an_experiment_is_tried():
    known = {key.name for key in keys_of(Experiment) if not key.name.startswith("model.")}
    tried = {key for _, change in CHANGES for key in change}
    said = {"name", "summary"}  # for people, and the name of the folder
    said |= {"training.residual.aim"}  # a bound, which refuses
    said |= {"conditions.NAME.truth", "conditions.NAME.noise"}  # of noise studies alone
    # beside a store that is given, and on a grid without the published sensors
    refused = {"data.recipe", "data.overrides", "noise.points"}
    below = {key.partition(".overrides.")[0] + ".overrides" for key in tried if ".over" in key}
    assert known - tried - below == said | refused
    kinds = {(key.name, key.when) for key in keys_of(Experiment) if key.when.startswith("task.")}
    for name, when in kinds:
        settings = {setting for setting, change in CHANGES if name in change}
        tasks = [SETTINGS[setting][1].get("task", {}).get("kind", "map") for setting in settings]
        assert when.removeprefix("task.kind = ") in tasks, (name, when)


TABLE: dict[str, Any] = {
    "name": "table",
    "summary": "Two operators",
    "datasets": {
        "circle": {"experiment": "benchmark-burgers-quick", "overrides": {"training.epochs": 2}},
        "square": {"experiment": "benchmark-darcy-quick"},
    },
    "operators": {
        "FNO": {"models": {
            "circle": {"name": "fno", "width": 4, "depth": 1, "modes": 3},
            "square": {"name": "fno", "width": 4, "depth": 1, "modes": 3},
        }},
        "DeepONet": {"model": {"name": "deeponet", "sensors": 16, "basis": 4}},
    },
    "quick": {"datasets": ["circle"]},
}  # fmt: skip
FNO = {"models": {"circle": {"name": "fno", "width": 8}}}
ENTRIES: dict[str, Any] = {  # another value of each key
    "name": "other",
    "summary": "another",
    "differs": "in this",
    "seeds": 2,
    "protocols": ["validation", "published"],
    "search": {"training.lr": [1e-3, 1e-2]},
    "widths": [1.0, 2.0],
    "budget": {"flat": 0.1, "seconds": 60.0},
    "datasets.NAME.experiment": "burgers-gt-512",
    "datasets.NAME.overrides": {"training.epochs": 3},
    "datasets.NAME.measure": "l1",
    "datasets.NAME.seeds": 3,
    "datasets.NAME.coarser": [{"solver.resolution": 4096}],
    "operators.NAME.model": {"name": "deeponet", "sensors": 16, "basis": 5},
    "operators.NAME.models": FNO["models"],
    "operators.NAME.overrides": {"training.lr": 0.01},
    "operators.NAME.published": {"circle": 0.1},
    "operators.NAME.published_grids": {"circle": {"64": 0.1}},
    "operators.NAME.published_measures": {"circle": {"l1": 0.1}},
    "operators.NAME.published_training": {"circle": {"hours": 2.0}},
    "operators.NAME.differs": "in that",
    "sources": {"hours": "Table 1"},
    "quick.datasets": ["square"],
    "quick.overrides": {"training.epochs": 1},
    "quick.changes": {"circle": {"training.epochs": 1}},
    "quick.coarser": {"circle": [{"solver.resolution": 4096}]},
    "quick.operators": {"FNO": FNO},
    "quick.seeds": 3,
    "quick.protocols": ["published"],
    "quick.search": False,
    "quick.budget": {"flat": 0.1},
}
FIGURES = ("published", "published_grids", "published_measures", "published_training")
# keys that take effect, or are allowed, beside another one
BESIDE = {"quick.search": "search", "operators.NAME.published_training": "sources"}


def table(changes: dict[str, Any]) -> Benchmark:
    content = Benchmark.parse(TABLE, "table").model_dump(mode="json", exclude_none=True)
    for key, value in changes.items():
        *path, last = key.replace("datasets.NAME", "datasets.circle").split(".")
        label = "DeepONet" if last == "model" else "FNO"
        within = content
        for name in path:
            within = within[name.replace("NAME", label)]
        within[last] = value
    return Benchmark.parse(content, "table")


def rows(benchmark: Benchmark) -> list[Any]:
    """What is trained, how it is measured and with what it is compared."""
    found: list[Any] = [benchmark.name, benchmark.summary, benchmark.differs, benchmark.sources]
    found.append(benchmark.budget)
    for case in benchmark.cases():
        dataset, entry = benchmark.datasets[case.dataset], benchmark.operators[case.operator]
        found += [case, dataset.measure, dataset.coarser, entry.differs]
        found += [getattr(entry, name).get(case.dataset) for name in FIGURES]
        for chosen in [{}, *benchmark.searched(case)]:
            for seed in range(benchmark.seeds_on(case.dataset)):
                found.append(benchmark.experiment(case, seed, chosen).model_dump_json())
    return found


@pytest.mark.parametrize("key", ENTRIES)
def test_a_key_of_a_benchmark_changes_what_is_run_or_shown(key):
    given = {other: ENTRIES[other] for other in (BESIDE.get(key),) if other}
    before, after = table(given), table({**given, key: ENTRIES[key]})
    after.check()
    if key.startswith("quick."):
        before, after = before.quickly(), after.quickly()
    assert rows(before) != rows(after)


def test_every_key_of_a_benchmark_is_tried():
    known = {key.name for key in keys_of(Benchmark)}
    tried = {key for key in known if any(f"{key}.".startswith(f"{own}.") for own in ENTRIES)}
    left = known - tried - {key for key in known if key.startswith("quick.operators.")}
    assert left == {"extends"}  # merges files (tests/pipelines/test_extending.py)


REQUESTS = ["data.recipe=burgers-shock", "data.overrides={seed=5}", "data.overrides.seed=5"]


@pytest.mark.parametrize("setting", REQUESTS)
def test_a_benchmark_refuses_another_recipe_beside_its_store(refused, stores, setting):
    for words, data in (
        (("benchmark", "quick", "--on", "burgers"), f"burgers={stores['circle']}"),
        (("study", "samples", "--quick"), stores["circle"]),
        (("train", "burgers-quick"), stores["circle"]),
    ):
        line = refused(*words, "--data", data, "--set", setting, "--out", "out")
        expected = "is not a store of.*or leave out --data"
        if words[0] == "benchmark" and "overrides" in setting:
            expected = "data.overrides.seed cannot be set: recipes and streams belong to the data"
        assert re.search(expected, line)


def test_a_recipe_that_the_store_has_is_no_refusal(stores):
    same, given = {**RECIPE, **SIZES}, {"circle": stores["circle"]}
    changes = {"datasets.NAME.overrides": {"data.overrides": same}}
    benchmark = table(changes).only([], ["circle"])
    recipe = benchmark.datasets["circle"].load().data.recipe
    assert benchmark.with_overrides({"data.recipe": recipe}, given).datasets.keys() == {"circle"}
    each = {f"data.overrides.{key}": value for key, value in same.items()} | {"training.batch": 4}
    for store in (None, stores["circle"]):
        assert samples_study("burgers-quick", [8, None], 1, each, store).datasets


def test_symmetries_do_not_move_parameters_that_may_be_positions(stores):
    change = {"task.kind": "map", "task.parameters": True, "training.symmetries.shift": True}
    experiment = declared("map").on(stores["numbered"], change)
    source = Source(stores["numbered"], experiment)
    with pytest.raises(SchemaError, match=r"does not move the parameters .* of"):
        check_symmetries(source, experiment.training.settings().augment)
