"""An experiment: data, model, training and evaluation, declared in one TOML file."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Annotated, Any, Self, TypeVar

from pydantic import Field, model_validator

from operators.data import Map, Task
from operators.norms import has_one_spacing
from pdegen.domains import Box, Domain
from pdegen.schema import Count, Name, SchemaError, Strict, flattened, is_name
from pdegen.store.reading import open_sealed
from pipelines.config.choices import LossTable, OptimizerTable, ScheduleTable
from pipelines.config.data import Data, alternatives
from pipelines.config.models import Model, ModelSpec, parse_model
from pipelines.config.physics import domain_of, functions_in, physics_of
from pipelines.config.registry import InputNoise, Normalization
from pipelines.config.shipped import check_asked, file_of
from pipelines.config.stream import RECIPE_KEYS, change_stream, overridden
from pipelines.config.training import (
    FORMER_KEYS,
    BlockTask,
    MapTask,
    RolloutTask,
    TaskSpec,
    TimeTask,
    Training,
)

_T = TypeVar("_T")
_FORMER = {f"training.{key}": key for key in FORMER_KEYS}
_OF_RECIPES = ("data.overrides", *(f"data.stream.{name}" for name in RECIPE_KEYS))


class Experiment(Strict):
    """All settings of a training run.

    Args:
        name: Name of the experiment and of its run folder.
        summary: Description in one line.
        data, model, training, normalization: Tables that have their own keys.
        noise: Noise on the inputs or the training targets; by default there is no noise.
        resolutions: Numbers of points along each axis of the grids on which the trained operator is
            evaluated without retraining.
        task: The learning task; by default the map from data.input to data.target.
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
        """Set the kind "map" if a task has inputs or targets but states no kind."""
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
        if self.noise and self.noise.kind == "sensors" and self.data.resolutions:
            raise ValueError(
                "noise.kind = 'sensors' chooses points of one grid and is not for "
                "data.resolutions: use data.resolution, or another kind"
            )
        if self.task is None:
            return self
        if self.noise is not None and not isinstance(self.task, MapTask):
            raise ValueError(f"noise is for the task map, the task is {self.task.kind}")
        if self.training.symmetries.for_maps and not isinstance(self.task, MapTask):
            raise ValueError(
                f"symmetries other than diagonal are for the task map, the task is {self.task.kind}"
            )
        if self.training.symmetries.reflection and self.task.parameters:
            raise ValueError("reflection changes the sign of all inputs, parameters among them")
        return self

    @classmethod
    def full_key(
        cls, key: str, preferred: Collection[str] = (), content: Mapping[str, Any] | None = None
    ) -> str:
        """The full dotted key that ends with `key`. Former keys of the schedule are their own."""
        for table in (Model, OptimizerTable, ScheduleTable, LossTable):
            table.variants()  # declares the classes that were registered since the last call
        return key if key in _FORMER else super().full_key(key, preferred, content)

    @property
    def has_noisy_inputs(self) -> bool:
        """Whether the operator sees inputs with noise."""
        return self.noise is not None and self.noise.on_inputs

    @property
    def learned(self) -> Task:
        """The learning task."""
        return Map() if self.task is None else self.task.build()

    @property
    def variables(self) -> tuple[str | list[str], str | list[str]]:
        """Names of the input and target variables."""
        task, data = self.task, self.data
        lists = (task.inputs, task.targets) if isinstance(task, MapTask) else (None, None)
        pairs = zip(lists, (data.input, data.target), strict=True)
        input, target = ([*names] if names else default for names, default in pairs)
        return input, target

    def check_applies(self, domain: Domain, where: str) -> None:
        """Raise SchemaError if the experiment sets a key that has no effect on this domain."""
        task, noise, stream = self.task, self.noise, self.data.stream
        if isinstance(task, RolloutTask) and task.teacher_forcing and task.steps == 1:
            raise SchemaError(
                "task.teacher_forcing needs several frames per training step, task.steps is 1: "
                "increase it, or leave task.teacher_forcing out"
            )
        if isinstance(domain, Box) and not self.training.area:
            raise SchemaError(
                f"training.weights is for meshes and clouds, {where} has a grid, whose points all "
                "have the same weight: leave it out"
            )
        if noise is not None and stream is not None and not noise.fresh:
            raise SchemaError(
                f"noise.fresh is for stored samples, the stream of {stream.recipe} uses each "
                "sample once: leave it out"
            )
        if (
            stream is not None
            and stream.sampling == "tail"
            and not isinstance(task, MapTask | None)
        ):
            raise SchemaError(
                f'data.stream.sampling = "tail" is for the task map, the task is {task.kind}'
            )

    @property
    def unread(self) -> dict[str, str]:
        """Keys of `data` that the task does not use, with the reason for each."""
        task = self.task
        if isinstance(task, MapTask):
            lists = {"data.input": task.inputs, "data.target": task.targets}
            return {
                key: f"{key.replace('data.', 'task.')}s names the variables, {', '.join(names)}"
                for key, names in lists.items()
                if names
            }
        static = isinstance(task, RolloutTask) and task.static
        if task is None or static or not task.history:
            return {}
        frames = f"the task {task.kind} starts from frames of data.target"
        condition = ", without task.static" if isinstance(task, RolloutTask) else ""
        return {"data.input": f"{frames}{condition}"}

    def mapped(self, store: str) -> str:
        """One line that names the inputs and the targets, and unused inputs of the store."""
        inputs, targets = ([name] if isinstance(name, str) else name for name in self.variables)
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
        laws = physics_of(open_sealed(store)).parameters
        numbers = [f"log {name}" if law.log else name for name, law in laws.items()]
        if task is None or not task.parameters:
            used, unused = inputs, [*unused, *laws]
        else:
            used = [*inputs, *(numbers or ["the parameters"])]
        rest = f" ({', '.join(unused)} of the store not used)" if unused else ""
        return f"inputs {', '.join(used)} -> {', '.join(targets)}{rest}"

    @classmethod
    def on_store(cls, store: str, model: str) -> Experiment:
        """An experiment for a store: an operator with default settings, trained on all its points.

        The protocol is "validation". All inputs of the store become input channels, and its first
        target is predicted. Numbers that differ from sample to sample by a law, such as a
        viscosity, are input channels too. On a circle, the loss is the relative H¹ error. On a
        plane grid with one spacing, it is the weighted H¹ error if the store names the weight. In
        all other cases, it is the relative L² error.

        Raises:
            StoreError: If the store is absent, or has no inputs or no targets.
        """
        parse_model({"name": model})  # raises SchemaError for an unknown operator
        opened = open_sealed(store)
        recipe, domain = opened.metadata.recipe.name, domain_of(opened)
        inputs, (target, *_) = (functions_in(opened, role) for role in ("input", "target"))
        first = inputs[0]
        name, box = f"{model}-on-{recipe}", domain if isinstance(domain, Box) else None
        circle = box is not None and box.axes == ("x",) and box.grid == "periodic"
        plane = box is not None and box.dim == 2 and has_one_spacing(box)
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
        }  # fmt: skip
        task: dict[str, object] = {"inputs": inputs} if len(inputs) > 1 else {}
        task |= {"parameters": True} if physics_of(opened).parameters else {}
        content |= {"task": {"kind": "map", **task}} if task else {}
        return cls.parse(content, f"model {model} on {store}")

    def at_level(self, level: float) -> Experiment:
        """This experiment with another noise level.

        Raises SchemaError for an impossible level.
        """
        noise = self.noise or InputNoise(level=0.0)
        if not noise.on_inputs:
            raise SchemaError(
                f"noise level {level:g}: experiment {self.name} has noise on the targets of "
                "training samples alone: leave the level out"
            )
        where = f"experiment {self.name}, noise"
        return self.model_copy(update={"noise": noise.replaced({"level": level}, where)})

    def on(self, store: str | None, overrides: Mapping[str, object]) -> Experiment:
        """This experiment with overrides (see `with_overrides`), to be run on a given store.

        Raises:
            SchemaError: See `with_overrides`. It is also raised if the overrides change the recipe
                and the given store was not generated from the changed recipe.
        """
        changed = self.with_overrides(overrides)
        before, after = (
            (experiment.data.recipe, experiment.data.overrides) for experiment in (self, changed)
        )
        if store is None or before == after:
            return changed
        if open_sealed(store).metadata.fingerprint != changed.data.load_recipe().fingerprint:
            raise SchemaError(
                f"{store} is not a store of {after[0]} with {after[1]}: leave out data.recipe and "
                "data.overrides, or leave out --data"
            )
        return changed

    def with_overrides(self, overrides: Mapping[str, Any]) -> Experiment:
        """This experiment with new values of some keys such as "training.epochs".

        Keys below `data.overrides`, `data.stream.overrides` and `data.stream.coarse` are keys of
        the recipes. A table stands for its dotted keys (`pdegen.schema.flattened`). Keys of a
        table that the experiment does not have add it: `data.stream.recipe` adds a stream,
        `task.kind` a task, and `noise.level` noise.

        Raises:
            SchemaError: For an unknown key, an impossible value, or a key that the task does not
                use.
        """
        where, overrides = f"experiment {self.name}", flattened(overrides)
        below = {
            prefix: {k.removeprefix(f"{prefix}."): v for k, v in overrides.items()
                     if k.startswith(f"{prefix}.")}
            for prefix in _OF_RECIPES
        }  # fmt: skip
        of_recipes = {f"{prefix}.{key}" for prefix, values in below.items() for key in values}
        direct = {key: value for key, value in overrides.items() if key not in of_recipes}
        table = self.with_values(direct)
        changes = dict[str, Any]()
        for key, value in direct.items():
            full = self.full_key(key, content=table)
            for other in [name for name in changes if _present(name) == _present(full)]:
                del changes[other]
            changes[full] = value
        streamed = {name: below[f"data.stream.{name}"] for name in RECIPE_KEYS}
        change_stream(self.data.stream, changes, streamed, where)
        if values := below["data.overrides"]:
            changes["data.overrides"] = overridden(
                self.data.load_recipe(), self.data.overrides, values
            )
        former = {name: changes.pop(key) for key, name in _FORMER.items() if key in changes}
        changed = self.replaced(alternatives(changes), where)
        if former:
            changed = changed.replaced(changed.training.moved(former, where), where)
        for key, reason in changed.unread.items():
            if key in changes and not any(
                changed_key.startswith("task") for changed_key in changes
            ):
                raise SchemaError(f"{where}: {key} has no effect: {reason}")
        if changed.data.stream is not None:
            changed.data.stream.load_coarse()  # reports a wrong recipe now
        return changed


def without(changes: Mapping[str, _T], keys: Iterable[str]) -> dict[str, _T]:
    """Overrides of an experiment, without those of keys in `keys`. Keys may be given by short, full
    or former names."""
    changed = {_full(key) for key in keys}
    return {key: value for key, value in changes.items() if _full(key) not in changed}


def _full(key: str) -> str:
    if key.startswith(tuple(f"{prefix}." for prefix in _OF_RECIPES)):
        return key
    return _present(Experiment.full_key(key))


def _present(full: str) -> str:
    """The present name of a full key."""
    return f"training.schedule.{_FORMER[full]}" if full in _FORMER else full


def asked_for(
    experiment: str | Experiment | None, model: str | None, data: str | None
) -> Experiment:
    """The requested experiment.

    A request names either an experiment or an operator and a store. `experiment` is an object, a
    name or the path of a TOML file.

    Raises:
        SchemaError: If both or neither of these are named, or the experiment is impossible.
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
    """Load an experiment by name or from a TOML file.

    Raises SchemaError for an unknown name or an impossible experiment. The message suggests similar
    names.
    """
    experiment = Experiment.load(file_of("experiment", name))
    data, stream = experiment.data, experiment.data.stream
    if store is None or data.recipe != open_sealed(store).metadata.recipe.name:
        data.load_recipe()  # reports a wrong recipe now
    if stream is not None:
        stream.load_coarse()
    return experiment
