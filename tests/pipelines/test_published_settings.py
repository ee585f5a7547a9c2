"""Settings of rows with published figures are those of the publication, or `differs` names them.

The settings below were typed from the publications, not from the declarations. None stands for what
a publication does not print. Where ours is another value, `differs` of the benchmark or of its row
(in an experiment, a comment) has to name the published one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from pipelines.config.benchmark import Benchmark, Case, load_benchmark
from pipelines.config.experiment import Experiment, load_experiment
from pipelines.config.shipped import file_of, names


def of(row, **changes):
    """Settings of a training beside those of a row.

    Args:
        row: Names and values.
        changes: source, where they are printed; epochs, batch, lr (the peak), loss, gamma (weight
            of the derivatives in the loss); schedule, "1cycle", "cosine" or "steps"; warmup, start,
            end of 1cycle (share of the steps before the peak, rates over the peak); clip, the
            largest norm of the gradient, 0 where it is not clipped; optimizer, "Adam" or "AdamW",
            weight_decay; train and test, numbers of samples; residual, feedforward, down, up, head,
            rates of dropout, by the names of Table 7 of Cao 2021 attention, FFN, downsample,
            upsample and decoder, -1 for "N/A".
    """
    return {**row, **changes}


# S. Cao, NeurIPS 2021: sections 3 (γ), 5 and C.1 (all others), Table 7 (dropout)
CAO = of({},
    source="Cao 2021, C.1", epochs=100, batch=4, lr=1e-3, schedule="1cycle", warmup=0.3,
    start=1e-4, end=1e-4, clip=1.0, optimizer="Adam", weight_decay=0.0, train=1024, test=100,
)  # fmt: skip
LINE = of(CAO, loss="h1", gamma=0.1)
LINES = {f"burgers-{n}": of(LINE, batch=batch) for n, batch in ((512, 8), (2048, 8), (8192, 4))}
SQUARE = of(CAO, loss="weighted-h1", gamma=0.5)
INVERSE = of(CAO, loss="l2")
DROPOUT_1D = {
    "FT": {"residual": 0.0, "feedforward": 0.05},
    "FT, layer norm": {"residual": 0.0, "feedforward": 0.05},
    "GT": {"residual": 0.0, "feedforward": 0.0},
    "GT, layer norm": {"residual": 0.1, "feedforward": 0.1},
    **{label: {} for label in ("ST", "ST, layer norm", "LT", "LT, layer norm")},  # not printed
    **{label: {} for label in ("GT, instance norm", "GT, instance norm, dropout")},
}
_FT = {"residual": 0.1, "feedforward": 0.1, "down": 0.05, "up": 0.0, "head": 0.0}
_GT = _FT | {"feedforward": 0.05}
DROPOUT_2D = {
    "FT": _FT | {"lr": 5e-4}, "FT, layer norm": _FT | {"lr": 5e-4},
    "GT": _GT, "GT, layer norm": _GT,
    "ST": {"lr": 5e-4}, "ST, layer norm": {"lr": 5e-4}, "LT": {}, "LT, layer norm": {},
}  # fmt: skip
_INVERSE = {"residual": 0.05, "feedforward": 0.05, "down": 0.05, "up": -1, "head": 0.05}
DROPOUT_INVERSE = {
    "FT": _INVERSE | {"lr": 5e-4}, "FT, layer norm": _INVERSE | {"lr": 5e-4},
    "GT": _INVERSE, "GT, layer norm": _INVERSE,
    "ST": {"lr": 5e-4}, "ST, layer norm": {"lr": 5e-4}, "LT": {}, "LT, layer norm": {},
}  # fmt: skip
# section 5: "the same 1cycle scheduler using the code provided in [57]", whose script has these
FNO = {"loss": "l2", "gamma": None, "batch": 20, "weight_decay": 1e-4, "clip": None}
FNO_2020 = FNO | {"epochs": 500, "schedule": "steps", "train": 1000}
# the slides: 1024 samples, H1, 25600 iterations in 100 epochs, 1cycle; MWO and XD from their codes
SLIDES = of(LINE, source="slides")
LONG = {"epochs": 500}
CITED = {
    "epochs": 500, "batch": 20, "loss": "l2", "gamma": None, "schedule": "steps", "train": None,
    "weight_decay": 1e-4, "clip": None,
}  # fmt: skip

# Z. Xiao et al., ICML 2024, section 4, "Implementation details"; batches, clipping and numbers of
# samples are those of its released code (zhijie-group/Orthogonal-Neural-operator)
ONO = of({},
    source="Xiao et al. 2024, section 4", epochs=500, lr=1e-3, loss="l2", schedule="1cycle",
    warmup=0.3, start=1 / 25, optimizer="AdamW", weight_decay=1e-5, clip=0.1,
)  # fmt: skip
ONO_SETS = {
    "NS 1e-5": of(ONO, batch=8, train=1000, test=200),
    "NS 1e-5, asked at a time": of(ONO, batch=8, train=1000, test=200),
    "Darcy 85": of(ONO, batch=4, train=1000, test=200),
    "Darcy": of(ONO, batch=8, clip=None, start=None),  # Table 2, 43 x 43 points
    "airfoil": of(ONO, batch=4, train=1000, test=200),
    "elasticity": of(ONO, batch=8, train=1000, test=200),
    "pipe": of(ONO, batch=2, train=1000, test=200),
    "plasticity": of(ONO, batch=8, train=900, test=80),
}
# rows of the same tables that are cited from other papers, or made with settings that are not said
_OTHERS = {"batch": None, "clip": None, "weight_decay": None, "start": None, "warmup": None}

# J. Chen and K. Wu, ICML 2024, section 4 and the released code that section names
PIT = of({},
    source="Chen and Wu 2024", epochs=500, lr=1e-3, schedule="cosine", optimizer="Adam",
    weight_decay=0.0, clip=0.0,
)  # fmt: skip
PIT_SETS = {
    "inviscid Burgers": of(PIT, batch=5, loss="l1", train=950, test=128),
    "shock tube": of(PIT, batch=8, loss="l1", train=1024, test=128),
    "Darcy": of(PIT, batch=8, loss="l2", train=1024, test=100),
    "vorticity": of(PIT, batch=8, loss="l2", train=1000, test=200),
    "elasticity": of(PIT, batch=10, loss="l2", train=1000, test=200),
    "elasticity, radii": of(PIT, batch=10, loss="l2", train=1000, test=200),
    "airfoil": of(PIT, batch=8, loss="l2", train=1000, test=200),
    "from 43": of(PIT, loss="l2"),
}
# the released code of Transolver and of its library, in whose tables the others stand
MESHES = {
    "elasticity": of(ONO, batch=1, train=1000, test=200),
    "pipe": of(ONO, batch=4, train=1000, test=200),
    "airfoil": of(ONO, batch=4, train=1000, test=200),
    "plasticity": of(ONO, batch=8, train=900, test=80),
    "vorticity": of(ONO, batch=2, train=1000, test=200),
}
_MESHES_ROWS = {
    "ONO": {"elasticity": {"batch": 8}, "pipe": {"batch": 2}},
    "PiT": {"airfoil": {"batch": 8, "schedule": None, "optimizer": "Adam", "weight_decay": 0.0}},
}


def published(name: str, case: Case) -> dict[str, Any]:
    """What is printed of a row of a shipped benchmark."""
    label, dataset = case.operator, case.dataset
    if name in ("burgers-table2a", "darcy-table2b", "inverse-table3"):
        sets, dropout = {
            "burgers-table2a": (LINES.get(dataset, LINE), DROPOUT_1D),
            "darcy-table2b": (SQUARE, DROPOUT_2D),
            "inverse-table3": (INVERSE, DROPOUT_INVERSE),
        }[name]
        if label.startswith("FNO"):
            return of(sets, **(FNO_2020 if label == "FNO 2020" else FNO))
        return of(sets, **dropout[label])
    if name == "ablation-table8":
        rate = 0.1 if label.endswith("dropout") else 0.0
        return of(LINES[dataset], residual=rate)
    if name == "slides-table":
        if label == "FNO 2020":
            return of(SLIDES, **CITED)
        if label.startswith(("MWO", "XD")):
            return of(SLIDES, **CITED)
        return of(SLIDES, **(LONG if label.endswith("500 epochs") else {}))
    if name.startswith("ono-table") or (
        name == "resolution" and not label.startswith(("PiT", "FNO+"))
    ):
        row = ONO_SETS["Darcy" if name == "resolution" else dataset]
        ours = label.startswith("ONO") or name in ("ono-table4", "ono-table5", "ono-table6")
        return row if ours else of(row, **_OTHERS)
    if name.startswith("pit-") or name == "resolution":
        row = PIT_SETS["from 43" if name == "resolution" else dataset]
        ours = label.startswith(("PiT", "Self", "width", "encoder", "decoder", "latent"))
        return row if ours else of(row, batch=None, clip=None, weight_decay=None)
    row = MESHES[dataset]
    if label == "Transolver":
        return row
    if name in ("standard", "standard-converged"):  # one protocol for all, which `differs` says
        return of(row, batch=None, weight_decay=None, clip=None)
    own = _MESHES_ROWS.get(label, {}).get(dataset, {})
    cited = {} if label == "ONO" else {"batch": None, "clip": None}
    return of(row, **cited | own)


def declared(experiment: Experiment, model: Any) -> dict[str, Any]:
    """The same of a declaration."""
    training, splits = experiment.training, experiment.data.load_recipe().splits
    return {
        "epochs": training.epochs,
        "batch": training.batch,
        "lr": training.lr,
        "loss": training.loss.name,
        "gamma": getattr(training.loss, "gamma", None),
        "schedule": "1cycle",
        "warmup": training.schedule.warmup,
        "start": 1 / training.schedule.div,
        "end": 1 / (training.schedule.div * training.schedule.final_div),
        "clip": training.clip,
        "optimizer": {"adam": "Adam"}.get(training.optimizer.name, training.optimizer.name),
        "weight_decay": getattr(training.optimizer, "weight_decay", 0.0),
        "train": experiment.data.samples or splits.train,
        "test": splits.test,
        "residual": getattr(model, "dropout", None),
        "feedforward": getattr(model, "feedforward_dropout", None),
        "down": getattr(model, "downscaler_dropout", None),
        "up": getattr(model, "upscaler_dropout", None),
        "head": getattr(model, "head_dropout", None),
    }


def number(value: float) -> str:
    """A number as prose writes it: 100, 0.1, 1e-4 or 5e-4."""
    if value >= 0.01:
        return re.escape(f"{value:g}")
    digits, _, power = f"{value:e}".partition("e")
    return re.escape(f"{float(digits):g}e{int(power)}")


NAMED = {  # how `differs` names a published value
    "epochs": lambda v: rf"{v} epochs",
    "batch": lambda v: rf"batch(es)? [^.;]*\b{v}\b|\b{v}\b[^.;]* batch|FNO has {v}\b|batch and w",
    "loss": lambda v: r"loss L2",
    "schedule": lambda v: {"steps": "steps of the learning rate|halved", "cosine": "cosine"}[v],
    "clip": lambda v: rf"prints {number(v)}\b" if v else r"clipped .{0,80}there not|not clipped",
    "optimizer": lambda v: rf"\b{v}\b",
    "weight_decay": lambda v: rf"weight decay(?! {number(v)}0)( {number(v)}|[.,;:])?",
    "train": lambda v: rf"\b{v}\b",
    "test": lambda v: rf"\b{v}\b",
    "up": lambda v: r"N/A for the dropout of the upsampling",
}


def unnamed(row: dict[str, Any], ours: dict[str, Any], differs: str) -> list[str]:
    """What is otherwise than published, and not named."""
    words, found = " ".join(differs.split()), list[str]()
    of_cycle = ("warmup", "start", "end")
    for key, value in row.items():
        other = row.get("schedule") != "1cycle" and key in of_cycle
        if key == "source" or value is None or other:
            continue
        if ours[key] == value or (isinstance(value, float) and ours[key] == pytest.approx(value)):
            continue
        name = NAMED.get(key)
        if name is None or not re.search(name(value), words):
            found.append(f"{key}: published {value} ({row['source']}), here {ours[key]}")
    return found


def published_cases(benchmark: Benchmark) -> Iterator[Case]:
    """The rows of a benchmark that have a published figure."""
    for case in benchmark.cases():
        entry = benchmark.operators[case.operator]
        figures = (entry.published, entry.published_grids, entry.published_measures)
        if any(case.dataset in of for of in figures) and case.protocol != "validation":
            yield case


@pytest.mark.parametrize("name", names("benchmark"))
def test_settings_of_published_rows_are_those_of_the_paper_or_are_named(name):
    benchmark = load_benchmark(name, sound=False)
    if not isinstance(benchmark, Benchmark):
        return  # a profile has no trainings
    found = dict[str, list[str]]()
    for case in published_cases(benchmark):
        experiment = benchmark.experiment(case, 0, {})
        differs = f"{benchmark.differs} {benchmark.operators[case.operator].differs}"
        ours = declared(experiment, benchmark.model(case))
        if faults := unnamed(published(name, case), ours, differs):
            found[str(case)] = faults
    assert not found


EXPERIMENTS = {
    **{f"burgers-gt-{n}": of(LINES[f"burgers-{n}"], **DROPOUT_1D["GT"])
       for n in (512, 2048, 8192)},
    "darcy-gt-141-43": of(SQUARE, **DROPOUT_2D["GT"]),
    "darcy-gt-211-61": of(SQUARE, **DROPOUT_2D["GT"]),
    "darcy-inverse-141-36": of(INVERSE, **_INVERSE | {"up": None}),
    "darcy-inverse-211-71": of(INVERSE, **_INVERSE | {"up": None}),
    "ns-ono": ONO_SETS["NS 1e-5"],
    "ns-transolver": MESHES["vorticity"],
    "airfoil-transolver": MESHES["airfoil"],
    "elasticity-transolver": MESHES["elasticity"],
    "pipe-transolver": MESHES["pipe"],
    "plasticity-transolver": MESHES["plasticity"],
    "ns-pit-vorticity": PIT_SETS["vorticity"],
    "inviscid-burgers-pit": PIT_SETS["inviscid Burgers"],
    "shock-tube-pit": PIT_SETS["shock tube"],
    # Li et al. 2021 and the released code
    "ns-fno": of(PIT, source="Li et al. 2021", batch=20, loss="l2", schedule="steps",
                      weight_decay=1e-4, clip=None, train=1000, test=200),
    "ns-fno-3d": of(PIT, source="Li et al. 2021", batch=10, loss="l2", schedule="steps",
                         weight_decay=1e-4, clip=None, train=1000, test=200),
}  # fmt: skip


def test_every_experiment_that_claims_published_settings_is_compared():
    claiming = {
        n for n in names("experiment") if "published settings" in load_experiment(n).summary
    }
    assert claiming == set(EXPERIMENTS)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_settings_of_published_experiments_are_those_of_the_paper_or_are_named(name):
    experiment, text = load_experiment(name), file_of("experiment", name).read_text("utf-8")
    comments = " ".join(re.findall("#(.*)", text))
    ours = declared(experiment, experiment.model)
    assert not unnamed(EXPERIMENTS[name], ours, comments)
