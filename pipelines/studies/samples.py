"""Samples study: measures the error of an operator as a function of the number of training
samples."""

from collections.abc import Mapping, Sequence
from typing import Any

from pdegen.schema import SchemaError, flattened
from pipelines.config.benchmark import Benchmark, Dataset, Entry
from pipelines.config.experiment import Experiment, load_experiment

UNLIMITED = "unlimited"
Number = int | None  # of distinct samples; None: a stream without limit


def samples_study(
    name: str,
    numbers: Sequence[Number],
    seeds: int,
    overrides: Mapping[str, object],
    store: str | None = None,
) -> Benchmark:
    """A benchmark of one operator, whose datasets differ in their number of distinct training
    samples.

    All trainings take the number of steps that the experiment declares. They use the first samples
    of one store, whose training split is large enough for the largest number. The validation and
    test samples are the same in all trainings.

    Args:
        numbers: Numbers of training samples. None stands for an unlimited stream of samples from
            the store's recipe.

    Raises:
        SchemaError: If a number is impossible, an override is wrong, or the experiment itself sets
            the number of samples.
    """
    overrides = flattened(overrides)
    experiment = load_experiment(name, store).on(store, overrides)
    data, training, where = experiment.data, experiment.training, f"study samples of {name}"
    if data.stream is not None or data.samples is not None:
        raise SchemaError(f"{where}: the study sets data.stream and data.samples; leave them out")
    if any(experiment.full_key(k) == "training.seed" for k in overrides if "overrides." not in k):
        raise SchemaError(f"{where}: the study sets training.seed; use --seeds")
    if not numbers or len(set(numbers)) < len(numbers):
        raise SchemaError(f"{where}: the numbers of samples must differ, got {_listed(numbers)}")
    for number in numbers:
        if number is not None and number < training.batch:
            raise SchemaError(f"{where}: a batch has {training.batch} samples, got {number}")
    common = {
        **overrides,
        "data.epoch_samples": data.epoch_samples or data.load_recipe().splits.train,
    }
    common |= _enlarged(experiment, max((n for n in numbers if n is not None), default=0))
    stream = {"data.stream.recipe": data.recipe} | {
        f"data.stream.overrides.{key}": value for key, value in data.overrides.items()
    }
    operator = Entry(
        model=experiment.model, models={}, overrides={}, published={}, published_grids={},
        published_measures={}, published_training={},
    )  # fmt: skip
    return Benchmark(
        name=f"{experiment.name}-samples",
        summary=f"{experiment.summary}: error against the number of training samples",
        seeds=seeds,
        datasets={
            label(n): Dataset(
                experiment=name,
                overrides={**common, **(stream if n is None else {"data.samples": n})},
            )
            for n in numbers
        },
        operators={experiment.model.name: operator},
        search={},
        sources={},
    )


def label(number: Number) -> str:
    """Name of the dataset that has the given number of training samples.

    >>> label(8192)
    '8,192 samples'
    """
    return f"{UNLIMITED if number is None else f'{number:,}'} samples"


def parse_numbers(text: str) -> tuple[Number, ...]:
    """Parse numbers of samples separated by commas.

    >>> parse_numbers("1024,unlimited")
    (1024, None)
    """
    words = [word.strip() for word in text.split(",")]
    if not all(word == UNLIMITED or (word.isdecimal() and int(word) > 0) for word in words):
        raise SchemaError(
            f"--samples must be numbers >= 1 or {UNLIMITED}, separated by commas, got {text!r}"
        )
    return tuple(None if word == UNLIMITED else int(word) for word in words)


def _listed(numbers: Sequence[Number]) -> str:
    return ",".join(UNLIMITED if n is None else str(n) for n in numbers) or "none"


def _enlarged(experiment: Experiment, samples: int) -> dict[str, Any]:
    """Overrides of the recipe that enlarge its training split to `samples` samples."""
    splits = experiment.data.load_recipe().splits
    if samples <= splits.train:
        return {}
    sizes = {"train": samples, "validation": splits.validation, "test": splits.test}
    return {
        "data.overrides.samples": sum(sizes.values()),
        **{f"data.overrides.splits.{split}": size for split, size in sizes.items()},
    }
