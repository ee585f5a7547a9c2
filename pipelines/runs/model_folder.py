"""Export of the model of a finished run to a folder that `load_model` reads."""

import hashlib
import os
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from operators.plugins import copy_name, recorded_file
from operators.training.checkpoint import (
    CONFIG,
    MODEL_FORMAT,
    WEIGHTS,
    CheckpointError,
    check_checkpoint,
    checkpoint_file,
    model_file,
)
from pdegen.files import read, read_json, start_manifest, write, write_json
from pdegen.formats.export_metadata import file_digest
from pdegen.formats.huggingface import RecipeText, yaml
from pdegen.formats.plan import check_replaceable, replacing
from pdegen.recipe import Recipe
from pdegen.schema import visible
from pdegen.store.card import block, code, escaped
from pdegen.store.writing import Fault
from pipelines.config.keys import keys_of
from pipelines.runs.finished import Result, read_result
from pipelines.runs.folder import RunError, check_folder
from pipelines.runs.plugins import keep_plugins
from pipelines.runs.reproduction import described, overriding, toml
from pipelines.runs.score import Score

# Text about a recipe for the card of an exported dataset: the TOML and the meaning of its keys.


def recipe_text(recipe: Mapping[str, Any]) -> RecipeText:
    """Text and key meanings of a recipe for dataset cards. It is empty for imports, stores with
    noise, and equations that are not registered.

    >>> from pdegen.recipe import load_recipe
    >>> text = recipe_text(load_recipe("burgers-quick").model_dump(mode="json"))
    >>> text.meanings["viscosity"]
    'The viscosity ν (length²/time).'
    """
    try:
        declared = Recipe.model_validate(recipe)
    except ValidationError:
        return RecipeText()
    problem = declared.problem.model_dump(mode="json")
    meanings = {
        key.name: f"{key.meaning[:-1]} ({key.unit})." if key.unit else key.meaning
        for key in keys_of(type(declared.problem), problem)
        if not key.when and key.meaning and len(key.choices) != 1  # a single choice says nothing
    }
    return RecipeText(toml(recipe), meanings)


CARD = "README.md"


def export_model(run: Path, out: Path, *, overwrite: bool = False) -> Path:
    """Write the model of a finished run to a folder.

    The folder contains model.safetensors, config.json and a card README.md. The weights are a copy
    of the first reported checkpoint. config.json has the description of the checkpoint, its scores
    and the SHA-256 of the other files. The folder is written completely or not at all.

    Raises:
        ReportError: If the folder is no finished run, or is damaged.
        RunError, FormatError: If `out` exists and cannot be replaced.
        OSError: If `out` cannot be written.
    """
    result = read_result(run)
    check_folder(out)
    _check_free(out, overwrite)
    with replacing(out) as partial:
        _check_free(out, overwrite)
        weights = read(result.checkpoint)
        partial.mkdir()
        start_manifest(partial)
        write(partial / WEIGHTS, weights)
        description = {k: value for k, value in result.description.items() if k != "sha256"}
        digest = hashlib.sha256(weights).hexdigest()
        scores = [_summary(score) for score in _main(result)]
        keep_plugins(partial, result.description.get("plugins", {}))
        write(partial / CARD, card(result).encode())
        others = sorted(partial.glob("[!.]*"))
        config = {
            "format": MODEL_FORMAT,
            "weights_sha256": digest,
            "files": {file.name: file_digest(file) for file in others if file.name != WEIGHTS},
            "scores": scores,
            **description,
        }
        write_json(partial / CONFIG, config)
    return out


def verify_model(folder: Path) -> list[Fault]:
    """Check that a model folder is as `export_model` has written it. Executes no code. The line of
    the licence in the card may be edited.

    Returns:
        The faults; empty if there are none.

    Raises:
        CheckpointError, FileError: If config.json is missing or damaged, or describes no model.
    """
    if not (folder / CONFIG).is_file():
        model_file(folder)  # says what is missing
    config, faults = read_json(folder / CONFIG), list[Fault]()
    if config.get("format") != MODEL_FORMAT:
        raise CheckpointError(f"{folder / CONFIG} does not describe a model")
    try:
        check_checkpoint(model_file(folder))
    except CheckpointError as error:
        faults.append(Fault(WEIGHTS, str(error).removeprefix(f"{folder / WEIGHTS} ")))
    for name, digest in config.get("files", {}).items():  # earlier exports list none
        file = folder / Path(name).name
        if not file.is_file():
            faults.append(Fault(name, "is missing"))
        elif file_digest(file) != digest:
            faults.append(Fault(name, "differs from its SHA-256: the file was changed"))
    return faults


def shipped_model(name: str) -> dict[str, Any]:
    """Summary, recipe, number of parameters and scores of a trained model of the package.

    Raises:
        CheckpointError: If no shipped model has the name.
    """
    config = read_json(checkpoint_file(Path(name)).with_name(CONFIG))
    experiment = config["experiment"]
    return {
        "summary": experiment["summary"],
        "recipe": experiment["data"]["recipe"],
        "parameters": config["parameters"],
        "scores": config["scores"],
    }


def _summary(score: Score) -> dict[str, Any]:
    """Relative L² errors of a checkpoint on a split, for config.json."""
    return {
        "split": score.split,
        "resolution": score.resolution,
        "samples": len(score.samples),
        "mean": score.mean,
        "median": score.median,
        "worst": score.worst,
        "std": score.std,
    }


def _check_free(out: Path, overwrite: bool) -> None:
    """Raise RunError if the folder exists and may not be replaced."""
    if not os.path.lexists(out):
        return
    if not overwrite:
        raise RunError(f"{out} exists: use --overwrite to replace it")
    if out.is_symlink() or not all((out / name).is_file() for name in (WEIGHTS, CONFIG, CARD)):
        raise RunError(f"{out} is no model folder and is not replaced")
    check_replaceable(out)


def card(result: Result) -> str:
    """Card of a model: a header for the Hugging Face Hub, then Markdown."""
    parts = (_header, _title, _scores, _limits, _use, _declaration, _citation)
    return "\n".join(line for part in parts for line in (*part(result), ""))


def _main(result: Result) -> list[Score]:
    """Scores of the exported checkpoint."""
    name = result.checkpoint.stem
    return [score for score in result.scores.results if score.checkpoint == name]


def _header(result: Result) -> Iterator[str]:
    experiment, data = result.experiment, result.scores.data
    model: dict[str, Any] = {
        "name": experiment.name,
        "results": [
            {
                "task": {"type": "other", "name": experiment.summary},
                "dataset": {"type": "pdegen", "name": data["recipe"], "revision": data["content"]},
                "metrics": [
                    {
                        "type": "relative_l2",
                        "value": score.mean,
                        "name": f"mean relative L2 error, {score.split}, n={score.resolution}",
                    }
                ],
            }
            for score in _main(result)
        ],
    }
    header = {
        "license": "unknown",
        "library_name": "pdegen-operators",
        "tags": ["physics", "pde", "operator-learning", experiment.model.name],
        "model-index": [model],
    }
    yield from yaml(header)


def _title(result: Result) -> Iterator[str]:
    experiment, data = result.experiment, result.scores.data
    description = result.description
    c_in, c_out = description["channels"]
    name, summary = escaped(experiment.name), escaped(described(experiment))
    yield from (f"# {name}", "", f"{summary}.", "", "| item | value |", "|---|---|")
    parameters = f"{result.scores.parameters:,} parameters"
    yield f"| operator | {escaped(experiment.model.name)}, {parameters} |"
    numbers = data.get("parameters", []) if description["task"].get("parameters") else []
    inputs = ", ".join([str(data["input"]), *numbers])
    variables = escaped(f"{inputs} -> {data['target']}")
    yield f"| map | {variables}: {_count(c_in, 'channel')} -> {_count(c_out, 'channel')} |"
    dim = description["dim"]
    points = f"{data['resolution']} points along each axis in training"
    yield f"| points | {_count(dim, 'dimension')}, {points} |"
    task = ", ".join(f"{key} {value}" for key, value in description["task"].items())
    yield f"| task | {escaped(task)} |"
    yield f"| data | recipe {escaped(data['recipe'])} |"
    yield f"| fingerprint | {code(data['fingerprint'])} (SHA-256 of all that determines the data) |"
    yield f"| content | {code(data['content'])} (SHA-256 of the data) |"
    epochs, seconds = len(result.history), result.scores.training_seconds
    epoch = description["epoch"]
    yield (f"| training | {_count(epochs, 'epoch')} in {seconds:.3g} s, weights of epoch {epoch} |")
    provenance = ", ".join(f"{k} {v}" for k, v in result.scores.provenance.items())
    yield f"| made by | {escaped(provenance)} |"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _scores(result: Result) -> Iterator[str]:
    training = result.experiment.training
    yield from ("## Scores", "")
    yield "Relative L² errors in physical units, over the samples of the split:"
    yield from ("", "| | points | samples | mean | median | worst |", "|---|---|---|---|---|---|")
    for name, scores in ((None, _main(result)), ("baseline", result.scores.trivial)):
        for score in scores:
            cells = (
                score.resolution,
                len(score.samples),
                *(f"{value:.3e}" for value in (score.mean, score.median, score.worst)),
            )
            row = " | ".join(map(str, cells))
            yield f"| {'this model' if name is None else escaped(score.checkpoint)} | {row} |"
    yield ""
    split = training.selection_split
    if result.checkpoint.stem == "last":
        yield f"Protocol `{training.protocol}`: the {split} split was scored after each epoch, and"
        yield "these are the weights of the last epoch, which it did not choose."
    else:
        yield f"Protocol `{training.protocol}`: the {split} split chose the epoch"
        yield "and the test split was read once, at the end."


def _limits(result: Result) -> Iterator[str]:
    data, samples = result.scores.data, len(_main(result)[0].samples)
    yield from ("## Limits", "")
    recipe = escaped(data["recipe"])
    yield f"- The errors hold for functions drawn by the recipe {recipe}; others were not tested."
    grids = ", ".join(str(score.resolution) for score in _main(result))
    trained = " or ".join(map(str, result.experiment.data.training_resolutions))
    yield f"- Trained on {trained} points along each axis, evaluated on {grids}."
    seed = result.experiment.training.seed
    yield f"- It is a single training with seed {seed}; other seeds give other errors."
    yield f"- The scores are over {samples} samples. Predictions have no guaranteed error bound."


def _use(result: Result) -> Iterator[str]:
    yield from ("## Use", "", "```python", "import operators", "")
    file = recorded_file(result.description, "operator")
    copy = "" if file is None else copy_name(file)  # without quotes and backslashes
    plugin = f', plugin="PATH OF THIS FOLDER/{copy}"' if copy else ""
    yield f'model = operators.load_model("PATH OF THIS FOLDER"{plugin})'
    c_in, dim = result.description["channels"][0], result.description["dim"]
    weight = ", weight=w" if getattr(result.experiment.model, "quadrature", False) else ""
    comment = ", w: (*grid), quadrature weights" if weight else ""
    yield f"# a: (batch, *grid, {c_in}), x: (*grid, {dim}){comment}"
    yield f"u = model.predict(a, x{weight})"
    option = f" --plugin {shlex.quote(f'PATH/{copy}')}" if copy else ""
    yield from ("```", "", "```sh", f"pdegen evaluate PATH --data STORE{option}", "```", "")
    yield "Values are in physical units. `config.json` describes the model and has the SHA-256 of"
    yield "the weights. Loading executes no code."
    if file is not None:
        yield "The operator is defined by the Python file in this folder, not by the package."
        yield "The file runs only if it is named."


def _declaration(result: Result) -> Iterator[str]:
    words = overriding(result.experiment) or ["experiment.toml"]
    copies = dict.fromkeys(map(copy_name, result.description.get("plugins", {}).values()))
    options = [word for name in copies for word in ("--plugin", name)]
    command = shlex.join(["pdegen", "run", *words, *options])
    named = words[0] != "experiment.toml"
    if named and "`" not in command and visible(command) == command:
        yield f"`{command}`, which is:"
    else:
        yield f"`{shlex.join(['pdegen', 'run', 'experiment.toml', *options])}`, with:"
    yield from ("", *block("toml", toml(result.experiment.model_dump(mode="json"))))


def _citation(result: Result) -> Iterator[str]:
    data = result.scores.data
    digest = hashlib.sha256(read(result.checkpoint)).hexdigest()
    yield from (
        "## Citation",
        "",
        "Cite the data as their card says, and the model by the digest of its weights:",
    )
    yield ""
    yield from block(
        "bibtex",
        f"@misc{{pdegen-model-{digest[:12]},\n"
        f"  title = {{{{The model {result.experiment.name.replace('_', chr(92) + '_')}}}}},\n"
        f"  note = {{Trained by pdegen {result.scores.provenance['pdegen']};\n"
        f"    weights {digest};\n"
        f"    data {data['recipe']}, fingerprint {data['fingerprint']},\n"
        f"    content {data['content']}}}\n"
        "}",
    )
