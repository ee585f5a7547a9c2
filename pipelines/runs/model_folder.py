"""A finished run -> a folder of its model, which `load_model` reads: weights, config.json, card."""

import hashlib
import os
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from operators.training.checkpoint import CONFIG, MODEL_FORMAT, WEIGHTS
from operators.training.files import read, write, write_json
from pdegen.formats.hugging_card import yaml
from pdegen.formats.replacing import check_replaceable, replacing
from pdegen.markdown import block, code, escaped, visible
from pdegen.ownership import begin
from pipelines.runs.finished import Result, read_result
from pipelines.runs.folder import RunError, check_folder
from pipelines.runs.reproduction import described, overriding, toml
from pipelines.runs.score import Score

CARD = "README.md"


def export_model(run: Path, out: Path, *, overwrite: bool = False) -> Path:
    """Write the model of a finished run into a folder: model.safetensors, the bytes of the first
    reported checkpoint; config.json, what it says of itself, with the SHA-256 of the weights; and
    README.md, a card. The folder appears as a whole or not at all.

    Raises:
        ReportError: If the folder is no finished run, or is damaged.
        RunError, ForeignError: If something is in the way.
        OSError: If the place cannot be written.
    """
    result = read_result(run)
    check_folder(out)
    _check_free(out, overwrite)
    with replacing(out) as partial:
        _check_free(out, overwrite)
        weights = read(result.checkpoint)
        partial.mkdir()
        begin(partial)
        write(partial / WEIGHTS, weights)
        said = {key: value for key, value in result.description.items() if key != "sha256"}
        digest = hashlib.sha256(weights).hexdigest()
        write_json(partial / CONFIG, {"format": MODEL_FORMAT, "weights_sha256": digest, **said})
        write(partial / CARD, card(result).encode())
    return out


def _check_free(out: Path, overwrite: bool) -> None:
    if not os.path.lexists(out):
        return
    if not overwrite:
        raise RunError(f"{out} exists: use --overwrite to replace it")
    if out.is_symlink() or not all((out / name).is_file() for name in (WEIGHTS, CONFIG, CARD)):
        raise RunError(f"{out} is no folder of a model: it is not replaced")
    check_replaceable(out)


def card(result: Result) -> str:
    """README.md of a model: a header that the Hugging Face Hub reads, then Markdown."""
    parts = (_header, _title, _scores, _limits, _use, _declaration, _citation)
    return "\n".join(line for part in parts for line in (*part(result), ""))


def _main(result: Result) -> list[Score]:
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
    experiment, data, said = result.experiment, result.scores.data, result.description
    c_in, c_out = said["channels"]
    name, summary = escaped(experiment.name), escaped(described(experiment))
    yield from (f"# {name}", "", f"{summary}.", "", "| | |", "|---|---|")
    parameters = f"{result.scores.parameters:,} parameters"
    yield f"| operator | {escaped(experiment.model.name)}, {parameters} |"
    both = escaped(f"{data['input']} -> {data['target']}")
    yield f"| map | {both}: {_count(c_in)} -> {_count(c_out)} |"
    yield f"| points | in {said['dim']} dimensions; {data['resolution']} of each axis in training |"
    yield f"| task | {escaped(', '.join(f'{k} {v}' for k, v in said['task'].items()))} |"
    yield f"| data | recipe {escaped(data['recipe'])} |"
    yield f"| fingerprint | {code(data['fingerprint'])}: SHA-256 of what the data were made from |"
    yield f"| content | {code(data['content'])}: SHA-256 of the data |"
    epochs, seconds = len(result.history), result.scores.training_seconds
    yield f"| training | {epochs} epochs in {seconds:.3g} s; that of epoch {said['epoch']} |"
    made = ", ".join(f"{k} {v}" for k, v in result.scores.provenance.items())
    yield f"| made by | {escaped(made)} |"


def _count(channels: int) -> str:
    return f"{channels} channel{'s' if channels > 1 else ''}"


def _scores(result: Result) -> Iterator[str]:
    training = result.experiment.training
    yield from ("## Scores", "")
    yield "Relative L² error of each sample in physical units, then over the samples:"
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
    yield f"Protocol `{training.protocol}`: the {training.selection_split} split chose the epoch"
    yield (
        "and is scored here, so the error is the smallest of many, not that of new samples."
        if training.protocol == "published"
        else "and the test split was read once, at the end."
    )


def _limits(result: Result) -> Iterator[str]:
    data, samples = result.scores.data, len(_main(result)[0].samples)
    yield from ("## Limits", "")
    recipe = escaped(data["recipe"])
    yield f"- The errors are of functions by the law of {recipe}; others were not tried."
    grids = ", ".join(str(score.resolution) for score in _main(result))
    yield f"- It was trained on {data['resolution']} points of each axis and scored on {grids}."
    seed = result.experiment.training.seed
    yield f"- It is one training, with seed {seed}; with another seed the error is another one."
    yield f"- The scores are of {samples} samples. No prediction comes with a bound of its error."


def _use(result: Result) -> Iterator[str]:
    yield from ("## Use", "", "```python", "import operators", "")
    yield 'model = operators.load_model("PATH OF THIS FOLDER")'
    c_in, dim = result.description["channels"][0], result.description["dim"]
    yield f"u = model.predict(a, x)  # a: (batch, *grid, {c_in}), x: (*grid, {dim})"
    yield from ("```", "", "```sh", "pdegen evaluate PATH --data STORE", "```", "")
    yield "Values are in physical units. `config.json` says what the weights are of and has their"
    yield "SHA-256. Loading executes no code."


def _declaration(result: Result) -> Iterator[str]:
    command = shlex.join(["pdegen", "run", *(overriding(result.experiment) or ())])
    yield from ("## Training", "")
    if command != "pdegen run" and "`" not in command and visible(command) == command:
        yield f"`{command}`, which is:"
    else:
        yield "`pdegen run experiment.toml`, with:"
    yield from ("", *block("toml", toml(result.experiment.model_dump(mode="json"))))


def _citation(result: Result) -> Iterator[str]:
    data = result.scores.data
    digest = hashlib.sha256(read(result.checkpoint)).hexdigest()
    yield from ("## Citation", "", "Cite the data as their card says, and the model by its digest:")
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
