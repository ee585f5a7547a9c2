"""The setting of a noise study: the noise with its size at each level, data, methods, trainings."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from pdegen.store.reading import open_sealed
from pipelines.config.experiment import InputNoise
from pipelines.reports.document import Formula, Section, Table
from pipelines.reports.noise_table import Results
from pipelines.reports.studies import Facts, data_section, of_data
from pipelines.reports.wording import number_of, part_of, settings, significant
from pipelines.runs.data import InOrder, NoisyTargets
from pipelines.studies.inversions import CONSTANT, Cell
from pipelines.studies.noise import NoiseStudy
from pipelines.studies.runner import Row


def noise_section(study: NoiseStudy) -> Section:
    """The formula of the noise, and its standard deviation and signal-to-noise ratio at each
    level."""
    levels = study.train_levels if study.on_targets else (*study.test_levels, *study.train_levels)
    single = sorted({level for level in levels if not isinstance(level, tuple)})
    kinds = {"trained and assumed": [study.noise(level) for level in single]}
    if study.test_kind is not None:
        kinds = {
            "trained and assumed": [study.noise(level) for level in single],
            "tested": [study.tested(level) for level in study.test_levels],
        }
    formulas, text, tables = list[Formula](), list[str](), list[Table]()
    name = study.names[1 if study.on_targets else 0]
    for role, noises in kinds.items():
        model, which = noises[0].build(), f" ({role})" * (len(kinds) > 1)
        formulas.append(Formula(f"Noise of {name}{which}", model.latex))
        stands = "" if name == "u" else f"u stands for {name}. "
        text.append(f"{stands}ε: the level, in {model.unit}; {model.meaning}.")
        tables.append(Table(*_sizes(study, noises), name=noises[0].kind))
    samples = "training targets" if study.on_targets else "test samples"
    text.append(
        f"The standard deviation s of the noise and the signal-to-noise ratio 10 log₁₀(mean u² / "
        f"s²) are measured on the {samples}."
    )
    return Section("Noise", tuple(dict.fromkeys(text)), tuple(tables), formulas=tuple(formulas))


def _sizes(
    study: NoiseStudy, noises: Sequence[InputNoise]
) -> tuple[list[tuple[str, ...]], tuple[str, ...]]:
    """Lines and header of the table of the sizes of noise at each level."""
    name = study.names[1 if study.on_targets else 0]
    arrays = open_sealed(study.store).arrays
    units = arrays[name].metadata.units if name in arrays else ""
    lines = list[tuple[str, ...]]()
    for noise in noises:
        clean, noisy = _values(study, noise)
        size, signal = (float(np.sqrt(np.mean(v**2))) for v in (noisy - clean, clean))
        spread = float(np.std(clean, axis=0).mean())
        ratio = f"{20 * np.log10(signal / size):.1f}" if size > 0 else "∞"
        share = significant(size / spread) if spread > 0 else ""
        lines.append((f"{noise.level:g}", significant(size), share, ratio))
    unit = noises[0].build().unit
    std = "standard deviation s" + (f", {units}" if units and units != "1" else "")
    return lines, (f"level, {unit}", std, "s / mean σ(x)", "signal-to-noise ratio, dB")


def _values(study: NoiseStudy, noise: InputNoise) -> tuple[np.ndarray, np.ndarray]:
    """Values without and with noise at the points that have a sensor, shape (samples, ...)."""
    if study.on_targets:
        train = study.source.stored("train").resident()
        numbers = train.ids.tolist()
        add = NoisyTargets(noise, study.source.target_std(train), InOrder.of(noise, numbers))
        clean = train.u.double().numpy()
        return clean, add(clean, numbers, None)
    clean, noisy = (
        study.source.samples("test", noise=of).resident().a[..., 0].double().numpy()
        for of in (None, noise)
    )
    sensors = study.inversions.seen(clean.shape[1:])
    return (clean, noisy) if sensors is None else (clean[:, sensors], noisy[:, sensors])


def setting(results: Results) -> Section:
    """Data, methods and trainings."""
    study, experiment = results.study, results.study.experiment
    seeds = f"{number_of(study.seeds, 'seed')} each"
    stored = open_sealed(study.store).samples_in("train")
    epochs = number_of(experiment.training.epochs, "epoch")
    samples = f"{part_of(experiment.data.samples, stored)}, {epochs}"
    assert experiment.noise is not None
    facts: Facts = [
        *of_data(study.store, learned(study)),
        *(
            [("Operators", ", ".join(e.model.name for e in study.operators))]
            if study.operators
            else []
        ),
        ("Noise", settings(_of_kind(experiment.noise))),
        *_unknown(study),
        *_drawn(study),
        (
            "Trainings",
            f"levels {', '.join(map(study.word, study.train_levels))}; {seeds}; {samples}",
        ),
        ("Reported epoch", reported_epoch(study)),
        ("Test samples", f"{len(study.truth)}{_fewer(results)}"),
        (CONSTANT.capitalize(), f"predicts the mean of {study.names[1]} over training samples"),
        *((method.name.capitalize(), _classical(results, method)) for method in study.classical),
    ]
    return data_section("Setting", study.store, facts)


def learned(study: NoiseStudy) -> str:
    """The learned map, such as "u on 29² points → a on 15² cells"."""
    data, power = study.experiment.data, exponent(study)
    input, target = study.names
    cells = "the same points"
    if data.target_resolution is not None:
        cells = f"{data.target_resolution}{power} cells"
    return f"{input} on {data.finest_resolution}{power} points → {target} on {cells}"


def exponent(study: NoiseStudy) -> str:
    """Exponent to write after the number of points along an axis: "²" in two dimensions."""
    return {1: "", 2: "²", 3: "³"}[study.source.samples("test", noise=None).dim]


def reported_epoch(study: NoiseStudy) -> str:
    """Text for the epoch whose errors are reported, which the protocol determines."""
    noise = "without noise" if study.on_targets else "with the training noise"
    if study.experiment.training.protocol == "published":
        return f"the last; test samples {noise} were watched during training"
    return f"the best on validation samples {noise}"


def _of_kind(noise: InputNoise) -> dict[str, Any]:
    return noise.model_dump(mode="json", exclude={"level", "fresh"}, exclude_none=True)


def _fewer(results: Results) -> str:
    """Text about methods that are tested on fewer samples."""
    every, fewer = len(results.study.truth), results.groups[-1].samples
    return f"; classical methods use the first {fewer}" if fewer < every else ""


def _drawn(study: NoiseStudy) -> Facts:
    """Facts about the draws of the noise."""
    noise = study.experiment.noise
    assert noise is not None
    facts = list[tuple[str, ...]]()
    if noise.on_inputs:
        facts += [
            ("Training noise", "new in every epoch" if noise.fresh else "drawn once"),
            ("Validation and test noise", "drawn once, independent of the training noise"),
        ]
    if noise.on_targets:
        facts += [
            ("Noise of the training targets", "drawn once for each sample"),
            ("Validation and test targets", "without noise"),
        ]
    return facts


def _unknown(study: NoiseStudy) -> Facts:
    """Facts about the properties of the noise that methods do not know, and about the grids of
    classical methods."""
    facts = list[tuple[str, ...]]()
    level = study.test_levels[0]
    noise = study.noise(level).build()
    if study.test_kind is not None:
        kind = settings(_of_kind(study.tested(level)))
        facts.append(("Noise of the test samples", f"{kind}; no method knows this kind"))
    elif noise.lost and study.classical:
        facts.append(("Unknown to classical methods", noise.lost))
    if not study.classical:
        reason = study.inversions.absent
        return [*facts, ("Classical methods", f"none: {reason}")] if reason else facts
    points, cells = study.experiment.data.finest_resolution, study.inversions.setting.cells
    power = exponent(study)
    grid = f"{cells}{power} {'points' if study.values is None else 'cells'}"
    facts.append(("Classical methods", f"data on {points}{power} points → {grid}"))
    return facts


def _classical(results: Results, part: Cell) -> str:
    """Text about a classical method: its purpose, its weights, and the error of its forward model
    relative to noise-free data."""
    assert isinstance(part.method, str)
    study, sentences = results.study, list[str]()
    method = study.inversions.methods[part.method]
    if part.assumed_level == 1:
        sentences.append(method.reason)
    if len(method.weights) > 1:
        sentences.append(_weights([row for row, *_ in results.rows[part]], method.weights))
    if method.model_error is not None and part.assumed_level == 1:
        share = f"{method.model_error():.2g}"
        sentences.append(f"its model differs from noise-free data by {share} of their deviation")
    return ". ".join(f"{words[0].upper()}{words[1:]}" for words in sentences)


def _weights(rows: Sequence[Row], grid: Sequence[float]) -> str:
    """Text about the weights that a classical method has at the test levels."""
    chosen = sorted({row.weight for row in rows if row.weight is not None})
    (samples,) = {row.weight_samples for row in rows}
    words, of = (", ".join(f"{weight:g}" for weight in sorted(w)) for w in (chosen, grid))
    text = f"weight {words}, chosen on {samples} validation samples from {of}"
    unconverged = sum(row.weight_unconverged for row in rows)
    note = f"; {unconverged} inversions for this choice did not converge"
    return text + note * bool(unconverged)
