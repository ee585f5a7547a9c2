"""An experiment: data, model, training and evaluation in one strict TOML file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from operators.data import Map, Task
from pdegen.domains import Box, Domain
from pdegen.recipe import Recipe, load_recipe
from pdegen.schema import Count, Name, SchemaError, Strict, is_name
from pdegen.store.reading import open_sealed
from pipelines.config.models import parse_model
from pipelines.config.physics import domain_of, functions_in, physics_of
from pipelines.config.registry import InputNoise, ModelSpec, Normalization, Symmetries
from pipelines.config.shipped import check_asked, file_of
from pipelines.config.training import (
    BlockTask,
    MapTask,
    RolloutTask,
    TaskSpec,
    TimeTask,
    Training,
)


class Stream(Strict):
    """Training samples without end: solved as they are needed, and used once.

    Args:
        recipe: Name of the recipe of the samples, or its TOML file.
        overrides: Other values at keys of this recipe.
    """

    recipe: str
    overrides: Annotated[dict[str, Any], Field(default_factory=dict)]

    def load_recipe(self) -> Recipe:
        return load_recipe(self.recipe).with_overrides(self.overrides)


class Data(Strict):
    """The recipe of the dataset, overrides of it, the grid to train on, and what is learned.

    Args:
        recipe: Name of the recipe of the dataset, or its TOML file.
        overrides: Other values at keys of this recipe.
        resolution: Points of each axis of the inputs, and of the targets by default.
        input: Name of the variable that is given: "a" of the forward operator, "u" of the inverse.
        target: Name of the variable that is learned.
        target_resolution: Average the targets over so many cells of each axis.
        reading: "resident" has all samples in memory, on the device; "streamed" reads shards ahead
            and shuffles a few at a time; "auto" is "resident" where they fit.
        samples: Train on the first so many samples of the training split; by default on all.
        epoch_samples: Samples of an epoch; by default as many as there are to train on, and with
            a stream as many as the training split has.
        stream: Train on samples of a recipe in place of the training split.
    """

    recipe: str
    overrides: Annotated[dict[str, Any], Field(default_factory=dict)]
    resolution: Count
    input: str = "a"
    target: str = "u"
    target_resolution: Count | None = None
    reading: Literal["auto", "resident", "streamed"] = "auto"
    samples: Count | None = None
    epoch_samples: Count | None = None
    stream: Stream | None = None

    @model_validator(mode="after")
    def _of_one_kind(self) -> Self:
        stored = {"reading": self.reading != "auto", "samples": self.samples is not None}
        for key in (key for key, given in stored.items() if given):
            if self.stream is not None:
                raise ValueError(
                    f"{key} is of stored training samples, and the stream of {self.stream.recipe} "
                    "replaces them: leave one of both out"
                )
        return self

    def load_recipe(self) -> Recipe:
        return load_recipe(self.recipe).with_overrides(self.overrides)


class Experiment(Strict):
    """Everything that a run depends on.

    Args:
        name: Name of the experiment, and of the folder of its runs.
        summary: A line for people.
        data, model, training, normalization: See there.
        noise: Of the inputs; none by default.
        resolutions: Points of each axis of the grids to evaluate on, without training again.
        task: What is learned; by default the map from data.input to data.target.
    """

    name: Name
    summary: str
    resolutions: Annotated[tuple[Count, ...], Field(min_length=1, strict=False)]
    data: Data
    model: ModelSpec
    training: Training
    normalization: Normalization = Normalization()
    noise: InputNoise | None = None
    task: TaskSpec | None = None

    @model_validator(mode="before")
    @classmethod
    def _of_a_map(cls, content: Any) -> Any:
        """Inputs and targets are of the task map alone, and need not name it."""
        task = content.get("task") if isinstance(content, dict) else None
        if isinstance(task, dict) and "kind" not in task and task.keys() & {"inputs", "targets"}:
            return {**content, "task": {"kind": "map", **task}}
        return content

    @model_validator(mode="after")
    def _of_one_task(self) -> Self:
        self.model.check_installed()
        levels = None if self.noise is None else self.noise.levels
        if levels is not None and self.training.symmetries.reflection:
            raise ValueError(
                "reflection changes the sign of all inputs, the noise level among them"
            )
        if self.task is None:
            return self
        if self.noise is not None and not isinstance(self.task, MapTask):
            raise ValueError(f"noise is of the task map, the task is {self.task.kind}")
        if self.training.symmetries != Symmetries() and not isinstance(self.task, MapTask):
            raise ValueError(f"symmetries are of the task map, the task is {self.task.kind}")
        if self.training.symmetries.reflection and self.task.parameters:
            raise ValueError("reflection changes the sign of all inputs, parameters among them")
        return self

    @property
    def learned(self) -> Task:
        return Map() if self.task is None else self.task.build()

    @property
    def variables(self) -> tuple[str | list[str], str | list[str]]:
        """Names of inputs and of targets."""
        task, data = self.task, self.data
        given = (task.inputs, task.targets) if isinstance(task, MapTask) else (None, None)
        names = zip(given, (data.input, data.target), strict=True)
        input, target = ([*own] if own else plain for own, plain in names)
        return input, target

    def check_applies(self, domain: Domain, where: str) -> None:
        """Raise SchemaError for a key that is set and changes nothing."""
        task, noise, stream = self.task, self.noise, self.data.stream
        if isinstance(task, RolloutTask) and task.teacher_forcing and task.steps == 1:
            raise SchemaError(
                "task.teacher_forcing is of several frames in a step of training, task.steps is 1: "
                "set more, or leave it out"
            )
        if isinstance(domain, Box) and not self.training.area:
            raise SchemaError(
                f"training.weights is of meshes and clouds, {where} has a grid, whose points all "
                "count alike: leave it out"
            )
        if noise is not None and stream is not None and not noise.fresh:
            raise SchemaError(
                f"noise.fresh is of stored samples, those of the stream of {stream.recipe} come "
                "once, with noise of their own: leave it out"
            )

    @property
    def unread(self) -> dict[str, str]:
        """Keys of the data that the task does not read, and why."""
        task = self.task
        if isinstance(task, MapTask):
            named = {"data.input": task.inputs, "data.target": task.targets}
            return {
                key: f"{key.replace('data.', 'task.')}s names the variables, {', '.join(names)}"
                for key, names in named.items()
                if names
            }
        static = isinstance(task, RolloutTask) and task.static
        if task is None or static or not task.history:
            return {}
        frames = f"the task {task.kind} begins with frames of data.target"
        more = ", without task.static" if isinstance(task, RolloutTask) else ""
        return {"data.input": f"{frames}{more}"}

    def mapped(self, store: str) -> str:
        """Which variables of a store are given and which are learned, in a line; and the inputs of
        the store that are not given."""
        inputs, targets = ([one] if isinstance(one, str) else one for one in self.variables)
        task, described = self.task, open_sealed(store).description
        if isinstance(task, RolloutTask | TimeTask | BlockTask) and task.history:
            frames = [f"the {'last' if task.kind == 'rollout' else 'first'} frames of {targets[0]}"]
            inputs = frames + (inputs if isinstance(task, RolloutTask) and task.static else [])
        unused = [
            name
            for name, variable in described.variables.items()
            if variable.metadata.role == "input"
            and name not in (*inputs, *targets)
            and described.axes_of(variable)
        ]
        given = [*inputs, *(["the parameters"] if task is not None and task.parameters else [])]
        left = f" ({', '.join(unused)} of the store not given)" if unused else ""
        return f"inputs {', '.join(given)} -> {', '.join(targets)}{left}"

    @classmethod
    def on_store(cls, store: str, model: str) -> Experiment:
        """A model with its default settings on all points of a store, chosen on validation.

        All inputs of the store are given, side by side, and its first target is learned.
        The loss is the relative H¹ error on a circle, where differences across the ends are right;
        on a box in the plane that with the weight that the store names; elsewhere the L² error.

        Raises:
            StoreError: If there is no such store, or it has no inputs and targets.
        """
        parse_model({"name": model})  # which says it where there is none
        opened = open_sealed(store)
        recipe, domain = opened.metadata.recipe.name, domain_of(opened)
        inputs, (target, *_) = (functions_in(opened, role) for role in ("input", "target"))
        first = inputs[0]
        name, box = f"{model}-on-{recipe}", domain if isinstance(domain, Box) else None
        circle = box is not None and box.axes == ("x",) and box.grid == "periodic"
        plane = box is not None and box.dim == 2
        weighted = plane and physics_of(opened).loss_weight == first
        content = {
            "name": name if is_name(name) else f"{model}-on-a-store",
            "summary": f"{model} on a store of {recipe}",
            "resolutions": [domain.shape[0]],
            "data": {
                "recipe": recipe, "resolution": domain.shape[0], "input": first, "target": target,
            },
            "model": {"name": model},
            "training": {"loss": {"name": "weighted-h1" if weighted else "h1" if circle else "l2"}},
            "normalization": dict.fromkeys(("input", "target"), "none" if circle else "scalar"),
            **({"task": {"kind": "map", "inputs": inputs}} if len(inputs) > 1 else {}),
        }  # fmt: skip
        return cls.parse(content, f"model {model} on {store}")

    def at_level(self, level: float) -> Experiment:
        """This experiment with another noise level of the inputs. Raises SchemaError if the level
        is impossible."""
        noise = self.noise or InputNoise(level=0.0)
        where = f"experiment {self.name}, noise"
        return self.model_copy(update={"noise": noise.replaced({"level": level}, where)})

    def on(self, store: str | None, overrides: Mapping[str, object]) -> Experiment:
        """`with_overrides`, on a store that is given. Raises SchemaError if they change the recipe,
        and the store is not of the changed recipe; or as of `with_overrides`."""
        changed = self.with_overrides(overrides)
        before, after = ((one.data.recipe, one.data.overrides) for one in (self, changed))
        if store is None or before == after:
            return changed
        if open_sealed(store).metadata.fingerprint != changed.data.load_recipe().fingerprint:
            raise SchemaError(
                f"{store} is not a store of {after[0]} with {after[1]}: data.recipe and "
                "data.overrides change what is generated, leave them or --data out"
            )
        return changed

    def with_overrides(self, overrides: Mapping[str, Any]) -> Experiment:
        """This experiment with other values at dotted keys.

        Keys below `data.overrides` and `data.stream.overrides` are those of the recipes. With
        `data.stream.recipe` an experiment without a stream gets one, with `task.kind` one without
        a task, with `noise`, a whole table, one without noise.

        Raises:
            SchemaError: On an unknown key, an impossible value, or a variable that is not read.
        """
        where = f"experiment {self.name}"
        below = {
            prefix: {key: v for key, v in overrides.items() if key.startswith(f"{prefix}.")}
            for prefix in ("data.overrides", "data.stream.overrides")
        }
        of_recipes = set().union(*below.values())
        own = {key: value for key, value in overrides.items() if key not in of_recipes}
        table = self.said_with(own)
        changes = {self.full_key(key, content=table): value for key, value in own.items()}
        stream = self.data.stream
        if "data.stream.recipe" in changes:
            there = {"overrides": stream.overrides} if stream else {}
            recipe = changes.pop("data.stream.recipe")
            stream = Stream.parse({**there, "recipe": recipe}, f"{where}, data.stream")
            changes["data.stream"] = stream.model_dump()
        for prefix, declared in zip(below, (self.data, stream), strict=True):
            if not below[prefix]:
                continue
            if declared is None:
                raise SchemaError(f"{where}: {prefix} needs a stream, name its data.stream.recipe")
            known = declared.load_recipe()
            given = {key.removeprefix(f"{prefix}."): value for key, value in below[prefix].items()}
            changed_keys = {known.own_key(key, given): value for key, value in given.items()}
            merged = {**declared.overrides, **changed_keys}
            if isinstance(declared, Stream):
                changes["data.stream"] = {"recipe": declared.recipe, "overrides": merged}
            else:
                changes[prefix] = merged
        if self.task is None:  # then the keys of one are a whole table
            keys = [key for key in changes if key.startswith("task.")]
            task = {key.removeprefix("task."): changes.pop(key) for key in keys}
            changes |= {"task": {**changes.get("task", {}), **task}} if task else {}
        changed = self.replaced(changes, where)
        for key, reason in changed.unread.items():
            if key in changes and not any(one.startswith("task") for one in changes):
                raise SchemaError(f"{where}: {key} is not read: {reason}")
        if changed.data.stream is not None:
            changed.data.stream.load_recipe()  # so that a wrong recipe is reported now
        return changed


def asked_for(
    experiment: str | Experiment | None, model: str | None, data: str | None
) -> Experiment:
    """An experiment, or the one of a name or TOML file; or a model on a store in its place.

    Raises:
        SchemaError: If it is both, none, or cannot be.
        StoreError: See `Experiment.on_store`.
    """
    if isinstance(experiment, Experiment) and model is None:
        return experiment
    name = experiment.name if isinstance(experiment, Experiment) else experiment
    check_asked(name, model, data)
    if name is not None:
        return load_experiment(name, data)
    return Experiment.on_store(str(data), str(model))


def load_experiment(name: str, store: str | None = None) -> Experiment:
    """An experiment by its name, or from a TOML file. Raises SchemaError on an unknown name (naming
    the near ones) or an impossible declaration."""
    experiment = Experiment.load(file_of("experiment", name))
    data, stream = experiment.data, experiment.data.stream
    if store is None or data.recipe != open_sealed(store).metadata.recipe.name:
        data.load_recipe()  # so that a wrong recipe is reported now
    if stream is not None:
        stream.load_recipe()
    return experiment
