"""A finished run -> report.html (one file) and report.md (pictures beside it), of one content."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
import torch
from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from operators.checkpoint import CheckpointError, check_fit, load_checkpoint
from operators.data import Pairs, read_pairs
from operators.evaluate import predictions
from operators.norms import relative_l2
from operators.train import Epoch
from pdegen.schema import SchemaError, parse_override
from pdegen.store import Store, open_sealed
from pipelines import pictures
from pipelines.experiment import Experiment, experiment_names, load_experiment
from pipelines.pictures import scientific
from pipelines.registry import build_operator

NOTICE = (
    "Published protocol: selected/watched on the test slice, for comparison with published tables. "
    "These are not scores on unseen data."
)
PROTOCOLS = {
    "validation": "The epoch with the smallest mean error on the validation split is reported; "
    "the test split was read once, after training.",
    "published": "The test slice was watched after every epoch; the last epoch and the best one "
    "on the test slice itself are reported.",
}
_LAWS = {
    "periodic-gaussian": "N(0, {sigma}²(−Δ + {tau}²)^(−{alpha})) on the circle of length 1, "
    "without its mean, {modes} modes",
}
_TAGS = ("equation", "law", "method", "name")  # keys whose value says what a part is
_MARKDOWN = str.maketrans({c: f"\\{c}" for c in r"\`*_[]<>|~#$&"} | {"\n": " ", "\r": " "})


class ReportError(ValueError):
    """A folder that is no finished run, or is damaged; one line that says what to do."""


class _Result(BaseModel):
    """Scores of one checkpoint at one resolution, as in scores.json."""

    checkpoint: str
    epoch: int
    split: str
    resolution: int
    samples: int = Field(ge=1)
    mean: float
    median: float
    worst: float
    std: float
    seconds: float


class _Scores(BaseModel):
    """What a report needs of scores.json."""

    experiment: dict[str, Any]
    data: dict[str, Any]
    parameters: int
    training_seconds: float
    provenance: dict[str, Any]
    results: list[_Result] = Field(min_length=1)


@dataclass(frozen=True)
class Table:
    """Rows of words; with a header the columns after the first are numbers."""

    rows: list[tuple[str, ...]]
    header: tuple[str, ...] = ()


@dataclass(frozen=True)
class Picture:
    """A chart: its file's name, what it shows in words, and its <svg> element."""

    name: str
    caption: str
    svg: str
    half: bool = False


@dataclass(frozen=True)
class Section:
    title: str
    text: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()
    pictures: tuple[Picture, ...] = ()
    code: tuple[str, ...] = ()


@dataclass(frozen=True)
class Report:
    """The content, whatever it is written in. All but the pictures is plain text."""

    title: str
    summary: str
    notice: str
    headline: list[tuple[str, str]]
    sections: list[Section]


@dataclass(frozen=True)
class _Run:
    """A finished run, its store, and predictions of the first reported checkpoint on test."""

    experiment: Experiment
    scores: _Scores
    history: list[Epoch]
    store: Store
    pairs: Pairs
    prediction: torch.Tensor
    checkpoint: str

    @property
    def published(self) -> bool:
        return self.experiment.training.protocol == "published"

    @property
    def main(self) -> _Result:
        """The score of the first reported checkpoint on the grid nearest to that of training."""
        grid = self.experiment.data.resolution
        results = [r for r in self.scores.results if r.checkpoint == self.checkpoint]
        return min(results, key=lambda r: abs(r.resolution - grid))


def write_report(folder: Path, store: str, device: torch.device) -> Path:
    """Write report.html, report.md and pictures/*.svg of a finished run.

    Nothing is trained; one checkpoint predicts the test split for the pictures.

    Args:
        folder: Folder of the run.
        store: The store that it was evaluated on.
        device: Where to predict.

    Returns:
        The path of report.html, which needs no other file.

    Raises:
        ReportError: If the folder is no finished run, is damaged, or is of other data.
        StoreError: If the store is absent or unfinished.
    """
    report = _report(_read(folder, store, device))
    (folder / "pictures").mkdir(exist_ok=True)
    for section in report.sections:
        for picture in section.pictures:
            (folder / "pictures" / f"{picture.name}.svg").write_text(picture.svg, "utf-8")
    (folder / "report.md").write_text(_markdown(report), "utf-8")
    path = folder / "report.html"
    path.write_text(_html(report), "utf-8")
    return path


def _read(folder: Path, url: str, device: torch.device) -> _Run:
    text = _text(folder, "run.json")
    try:
        experiment = Experiment.parse(json.loads(text)["experiment"], "experiment")
    except (ValueError, KeyError, TypeError) as error:
        raise _damaged(folder, "run.json", "EXPERIMENT", "--overwrite", error) from None
    name = experiment.name
    again = f"evaluate again by {_command(folder, name, '--resume')}"
    try:
        scores = _Scores.model_validate_json(_text(folder, "scores.json", name))
    except ValidationError as error:
        raise _damaged(folder, "scores.json", name, "--resume", error) from None
    if scores.experiment != experiment.model_dump(mode="json"):
        raise ReportError(f"{folder}/scores.json is of another experiment: {again}")
    history = _history(folder, name, experiment.training.epochs)
    store = open_sealed(url)
    if store.attributes["content"] != scores.data.get("content"):
        raise ReportError(f"{url} holds other data than {folder} was evaluated on: give its store")
    checkpoint = experiment.training.reported[0]
    path = folder / f"{checkpoint}.safetensors"
    pairs = read_pairs(url, "test", experiment.data.resolution)
    try:
        predictor, description = load_checkpoint(path, build_operator)
        check_fit(predictor, pairs)
    except (CheckpointError, SchemaError) as error:
        train = _command(folder, name, "--overwrite")
        raise ReportError(f"{error}: train again by {train}") from error
    if {r.epoch for r in scores.results if r.checkpoint == checkpoint} != {description["epoch"]}:
        raise ReportError(f"{folder}/scores.json is not of {path.name}: {again}")
    prediction = predictions(predictor.to(device), pairs.to(device)).cpu()
    return _Run(experiment, scores, history, store, pairs, prediction, checkpoint)


def _history(folder: Path, name: str, epochs: int) -> list[Epoch]:
    lines = _text(folder, "history.jsonl", name).splitlines()
    try:
        history = [TypeAdapter(Epoch).validate_json(line) for line in lines]
    except ValidationError as error:
        raise _damaged(folder, "history.jsonl", name, "--overwrite", error) from None
    if len(history) < epochs:
        raise ReportError(
            f"{folder} is not finished, {len(history)} of {epochs} epochs: "
            f"continue by {_command(folder, name, '--resume')}"
        )
    return history


def _text(folder: Path, file: str, name: str = "EXPERIMENT") -> str:
    try:
        return (folder / file).read_text("utf-8")
    except (FileNotFoundError, NotADirectoryError):
        option = "" if name == "EXPERIMENT" else "--resume"
        finish = _command(folder, name, option)
        raise ReportError(f"{folder} is no finished run, {file} is missing: {finish}") from None
    except UnicodeDecodeError as error:
        raise _damaged(folder, file, name, "--overwrite", error) from None


def _command(folder: Path, name: str, option: str) -> str:
    return f"pdegen run {shlex.quote(name)} --out {shlex.quote(str(folder))} {option}".strip()


def _damaged(folder: Path, file: str, name: str, option: str, error: Exception) -> ReportError:
    reason = str(error)
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        reason = f"{'.'.join(map(str, first['loc']))} {first['msg']}".strip()
    repair = _command(folder, name, option)
    return ReportError(f"{folder / file} is damaged ({reason}): make it again by {repair}")


def _report(run: _Run) -> Report:
    main, experiment = run.main, run.experiment
    splits = run.store.attributes["splits"]
    train = splits["train"][1] - splits["train"][0]
    where = f"test slice, {main.checkpoint} epoch" if run.published else "test split"
    return Report(
        title=experiment.name,
        summary=experiment.summary,
        notice=NOTICE if run.published else "",
        headline=[
            (f"mean relative L² error, {where}, n = {main.resolution}", scientific(main.mean)),
            ("parameters of the model", f"{run.scores.parameters:,}"),
            (f"training, {len(run.history)} epochs", _duration(run.scores.training_seconds)),
            ("training samples", f"{train:,}"),
        ],
        sections=[
            Section("What was run", tables=(Table(_facts(run)),)),
            _score_section(run),
            _learning_section(run),
            _prediction_section(run),
            _cost_section(run),
            _provenance_section(run),
            _reproduction_section(run),
        ],
    )


def _facts(run: _Run) -> list[tuple[str, ...]]:
    experiment, attributes = run.experiment, run.store.attributes
    recipe, training = attributes["recipe"], experiment.training.model_dump(mode="json")
    model = experiment.model.model_dump(mode="json")
    problem = recipe.get("problem", {})
    splits = {k: f"{stop - start:,}" for k, (start, stop) in attributes["splits"].items()}
    parts = [
        (key.capitalize(), _law(part)) for key, part in problem.items() if isinstance(part, dict)
    ]
    constants = {k: v for k, v in problem.items() if not isinstance(v, dict) and k not in _TAGS}
    protocol = training.pop("protocol")
    return [
        ("Equation", attributes["equation"]),
        ("Data", f"{recipe['name']}: {attributes['title']}"),
        ("Constants", _words(constants)),
        *parts,
        ("Samples", f"{run.store.samples:,}; {_words(splits)}; seed {recipe.get('seed')}"),
        *_solver_error(run),
        ("Model", f"{model.pop('name')}, {run.scores.parameters:,} parameters"),
        ("Model settings", _words(model)),
        ("Trained on", f"n = {experiment.data.resolution} points"),
        ("Training", _words(training)),
        ("Protocol", f"{protocol}: {PROTOCOLS[protocol]}"),
    ]


def _law(part: Mapping[str, Any]) -> str:
    """A law as its formula, or a part of a recipe in words."""
    if part.get("law") in _LAWS:
        return _LAWS[part["law"]].format(**{k: _value(v) for k, v in part.items()})
    return _words(part)


def _solver_error(run: _Run) -> Iterable[tuple[str, str]]:
    """The error of the data by the solver's own estimate, where the store has one."""
    if "error" in run.store.variables:
        errors = np.asarray(run.store.array("error")[...])
        median, worst = scientific(float(np.median(errors))), scientific(float(errors.max()))
        yield "Error of the data", f"median {median}, worst {worst} (the solver's own estimate)"


def _words(values: Mapping[str, Any]) -> str:
    """Names and values: "epochs 8, loss h1 (gamma 0.1)"."""
    parts = []
    for key, value in values.items():
        words = _value(value)
        if isinstance(value, dict):
            tag = "".join(f"{value[t]} " for t in _TAGS if t in value)
            words = f"{tag}({_words({k: v for k, v in value.items() if k not in _TAGS})})"
        parts.append(f"{key.replace('_', ' ')} {words}")
    return ", ".join(parts)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list | tuple):
        if len(value) > 4:
            return f"{_value(value[0])} … {_value(value[-1])} ({len(value)} values)"
        return " ".join(_value(v) for v in value)
    return str(value)


def _score_section(run: _Run) -> Section:
    how = {"last": "last (watched on the test slice)", "best": "best (selected on the test slice)"}
    rows: list[tuple[str, ...]] = [
        (
            how.get(r.checkpoint, r.checkpoint) if run.published else r.checkpoint,
            str(r.epoch), f"{r.resolution:,}", f"{r.samples:,}",
            *(scientific(v) for v in (r.mean, r.median, r.worst, r.std)),
        )
        for r in run.scores.results
    ]  # fmt: skip
    header = ("checkpoint", "epoch", "points", "samples", "mean", "median", "worst", "spread")
    text = (
        f"Relative L² error ‖p − u‖/‖u‖ of each sample of the test "
        f"{'slice' if run.published else 'split'}; spread is the standard deviation over the "
        f"samples. Trained on {run.experiment.data.resolution:,} points, evaluated on the others "
        "without training again."
    )
    return Section("Scores", (text,), (Table(rows, header),))


def _learning_section(run: _Run) -> Section:
    training, best = run.experiment.training, min(run.history, key=lambda e: e.score)
    where = "test slice (published protocol)" if run.published else "validation split"
    caption = (
        f"Training loss ({training.loss.name}) and mean relative L² error on the {where} after "
        f"each of {len(run.history)} epochs; smallest {scientific(best.score)} in epoch "
        f"{best.epoch}. The dotted line is the learning rate."
    )
    figure = pictures.learning_curve(
        [vars(epoch) for epoch in run.history], training.loss.name, training.selection_split,
        run.published,
    )  # fmt: skip
    return Section("Learning curve", pictures=(_picture(figure, "learning-curve", caption),))


def _prediction_section(run: _Run) -> Section:
    errors = relative_l2(run.prediction.double(), run.pairs.u.double()).numpy()
    u, p, x = run.pairs.u.numpy(), run.prediction.numpy(), run.pairs.x[:, 0].numpy()
    start, n = run.pairs.samples[0], run.pairs.source["resolution"]
    times = np.arange(1.0, u.shape[-1] + 1)
    if "time" in run.store.group:
        times = np.atleast_1d(np.asarray(run.store.array("time")[...], dtype=float))
    order = np.argsort(errors)
    named = ", ".join(
        f"{name} (sample {start + order[i]}) {scientific(float(errors[order[i]]))}"
        for name, i in (("best", 0), ("median", (len(order) - 1) // 2), ("worst", -1))
    )
    curves = (x, u, p)
    if run.pairs.periodic:
        curves = (pictures.closed(x), pictures.periodic(u, 1), pictures.periodic(p, 1))
    found = [_picture(
        pictures.best_median_worst(*curves, errors, start, times.tolist()), "predictions",
        "Prediction p over the truth u, and beneath it the error p − u on its own scale. "
        f"Relative L² error: {named}.",
    )]  # fmt: skip
    if run.pairs.periodic:
        modes = getattr(run.experiment.model, "modes", None)
        mark = f" The decoder keeps the modes below {modes}." if modes else ""
        found.append(_picture(
            pictures.error_spectrum(u, p, modes), "error-spectrum",
            f"Spectrum: mean size of the Fourier coefficients of target and error.{mark}", True,
        ))  # fmt: skip
    found.append(_picture(
        pictures.error_histogram(errors), "error-histogram",
        f"Errors of the {len(errors)} test samples: median {scientific(float(np.median(errors)))}, "
        f"worst {scientific(errors.max())}.", True,
    ))  # fmt: skip
    text = f"The checkpoint “{run.checkpoint}” on the test samples at n = {n}."
    return Section("Predictions and their errors", (text,), pictures=tuple(found))


def _picture(figure: Any, name: str, caption: str, half: bool = False) -> Picture:
    return Picture(name, caption, pictures.svg(figure, name, caption), half)


def _cost_section(run: _Run) -> Section:
    seconds = run.scores.training_seconds
    device = run.scores.provenance.get("device", "unknown")
    facts: list[tuple[str, ...]] = [
        ("Training", f"{_duration(seconds)} for {len(run.history)} epochs"),
        ("Each epoch", _duration(seconds / len(run.history))),
        ("Parameters", f"{run.scores.parameters:,}"),
        ("Evaluated on", f"{device}, threads {run.scores.provenance.get('threads', '?')}"),
    ]
    rows: list[tuple[str, ...]] = [
        (r.checkpoint, f"{r.resolution:,}", f"{r.samples:,}", f"{r.seconds:.3g}",
         f"{1e3 * r.seconds / r.samples:.3g}")
        for r in run.scores.results
    ]  # fmt: skip
    header = ("evaluation", "points", "samples", "seconds", "ms per sample")
    return Section("Cost", tables=(Table(facts), Table(rows, header)))


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def _provenance_section(run: _Run) -> Section:
    attributes = run.store.attributes
    facts = [
        ("Run", _words(run.scores.provenance)),
        ("Data made by", _words(attributes["provenance"])),
        ("Store", str(run.store.url)),
        ("Fingerprint", attributes["fingerprint"]),
        ("Content digest", attributes["content"]),
    ]
    recipe = "\n".join(_toml(attributes["recipe"]))
    text = "The fingerprint is that of the recipe, the content digest that of the data."
    return Section("Provenance", (text,), (Table(facts),), code=(f"# recipe\n{recipe}",))


def _reproduction_section(run: _Run) -> Section:
    command = reproduction(run.experiment, run.store)
    declared = f"# experiment\n{chr(10).join(_toml(run.experiment.model_dump(mode='json')))}"
    if run.scores.provenance.get("device", "").startswith("cuda"):
        command += " --device cuda"
    text = "This command runs it again; all its settings are below."
    if command.startswith("pdegen run experiment.toml"):
        text = "Save the declaration below as experiment.toml; this command runs it again."
    return Section("How to reproduce it", (text,), code=(command, declared))


def reproduction(experiment: Experiment, store: Store) -> str:
    """The command that runs an experiment again, from the shipped one of its name if possible."""
    words = _overriding(experiment) or ["pdegen", "run", "experiment.toml"]
    try:
        made_here = experiment.data.load_recipe().fingerprint == store.attributes["fingerprint"]
    except SchemaError:  # the store's recipe does not come with the project
        made_here = False
    if not made_here:
        words += ["--data", str(store.url)]
    return shlex.join(words)


def _overriding(experiment: Experiment) -> list[str] | None:
    """`pdegen run NAME --set ...`; None where no overrides lead there."""
    if experiment.name not in experiment_names():
        return None
    shipped = load_experiment(experiment.name)
    there = _flat(shipped.model_dump(mode="json"))
    changes = [
        f"{key}={_bare(value)}"
        for key, value in _flat(experiment.model_dump(mode="json")).items()
        if there.get(key) != value
    ]
    try:
        reached = shipped.with_overrides(dict(parse_override(text) for text in changes))
    except SchemaError:
        return None
    if reached != experiment:
        return None
    return ["pdegen", "run", experiment.name] + [word for c in changes for word in ("--set", c)]


def _flat(content: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Values by dotted keys."""
    flat = {}
    for key, value in content.items():
        path = prefix + key
        flat |= _flat(value, f"{path}.") if isinstance(value, dict) else {path: value}
    return flat


def _bare(value: Any) -> str:
    """A value of --set: without quotes where it is read as the same word."""
    if isinstance(value, str) and parse_override(f"k={value}") == ("k", value):
        return value
    return _toml_value(value)


def _toml(content: Mapping[str, Any], path: str = "") -> list[str]:
    """Lines of a TOML document."""
    simple = {k: v for k, v in content.items() if not isinstance(v, dict) and v is not None}
    lines = [f"{_key(key)} = {_toml_value(value)}" for key, value in simple.items()]
    for key, value in content.items():
        if isinstance(value, dict) and value:
            inner = f"{path}.{_key(key)}" if path else _key(key)
            lines += ["", f"[{inner}]", *_toml(value, inner)]
    return lines


def _key(key: str) -> str:
    return key if key.replace("_", "").replace("-", "").isalnum() else json.dumps(key)


def _toml_value(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(_toml_value(v) for v in value)}]"
    return repr(value) if isinstance(value, float) else json.dumps(value, ensure_ascii=False)


def _html(report: Report) -> str:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent), autoescape=True,
        undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    return environment.get_template("report.html.jinja").render(report=report)


def _markdown(report: Report) -> str:
    def escaped(text: str) -> str:
        return text.translate(_MARKDOWN)

    def row(words: Iterable[str]) -> str:
        return f"| {' | '.join(escaped(word) for word in words)} |"

    parts = [f"# {escaped(report.title)}", escaped(report.summary)]
    parts += [f"> **{escaped(report.notice)}**"] if report.notice else []
    parts += ["\n".join(f"* {escaped(what)}: **{value}**" for what, value in report.headline)]
    for section in report.sections:
        parts += [f"## {section.title}", *map(escaped, section.text)]
        for table in section.tables:
            header = table.header or ("", "")
            rule = "|".join(["---", *["--:" if table.header else "---"] * (len(header) - 1)])
            parts.append("\n".join([row(header), f"|{rule}|", *map(row, table.rows)]))
        for picture in section.pictures:
            alternative = escaped(picture.caption)
            parts += [f"![{alternative}](pictures/{picture.name}.svg)", f"*{alternative}*"]
        for code in section.code:  # indented: no text in it can end the block
            parts.append("\n".join(f"    {line}" for line in code.splitlines()))
    return "\n\n".join(parts) + "\n"
