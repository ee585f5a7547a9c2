"""Wrong requests with laws, plugins, open choices, benchmark files and noise: one line, status 2,
before anything is written."""

import re
import shlex
from pathlib import Path

import pytest

from operators.registry import REGISTRIES

pytestmark = pytest.mark.timeout(120)

FILES = {  # files that the requests name
    "a.toml": 'extends = "standrad"',
    "b.toml": 'extends = "b.toml"',
    "c.toml": "extends = 3",
    "d.toml": 'extends = "quick"\n[operators.Mine.models]\nburger = { name = "fno" }',
    "e.toml": 'extends = "profile-quick"\nsource = ""',
    "f.toml": 'extends = "quick"\n[operators.FNO]\n'
    "published_training = { burgers = { hours = 1.0 } }",
    "exits.py": "import sys\nsys.exit(3)",
    "relative.py": "from . import helper",
    "raises.py": "raise ValueError('no')",
    "nothing.py": "x = 1",
    "taken.py": "from operators.models.fno import FNO\nfrom operators.registry import register\n"
    "class Mine(FNO): pass\nregister('fno', Mine)",
}
BURGERS = "generate burgers-quick --set"
PHASES = (
    "generate darcy-contrast --set coefficient.kind=phases --set coefficient.values=[1.0,5.0,20.0]"
)
TRAIN = "train burgers-quick --set training."
NOISE = "study noise darcy-inverse-quick"
PIT = 'train elasticity-transolver-quick --set \'model={name="pit", latent_points="farthest", '
REQUESTS = [
    # laws of numbers
    (f"{BURGERS} \"viscosity={{law='normal',low=1,high=2}}\"", "unknown 'normal'.*log-uniform"),
    (f'{BURGERS} "viscosity={{low=1,high=2}}"', "belongs to a law, but viscosity is a number"),
    (f"{BURGERS} \"viscosity={{law='uniform',low=2,high=1}}\"", "low must be below high"),
    (f"{BURGERS} \"viscosity={{law='log-uniform',low=0,high=1}}\"", "low: must be greater than 0"),
    (f"{BURGERS} \"viscosity={{law='uniform',low=-1,high=1}}\"", "low: must be greater than 0"),
    (f"{BURGERS} viscosity.low=0.1", "belongs to a law, but viscosity is a number"),
    (f"{BURGERS} \"times=[{{law='uniform',low=1,high=2}}]\"", "times.0.*cannot have a law"),
    ("generate ns-quick --set \"amplitude={law='uniform',low=-1,high=1}\"", "amplitude.low"),
    ("generate darcy-contrast --set above.low=0.0", "above.low: must be greater than 0"),
    ("generate darcy-contrast --set above.low=500.0", "low must be below high"),
    (f"{PHASES} --set thresholds=[0.3]", "3 values need 2 thresholds"),
    (f"{PHASES} --set thresholds=[0.3,-0.3]", "thresholds must increase"),
    ("generate darcy-421-published --set walls=1.0", "solves the published problem only"),
    ("generate darcy-source --set source.sigma=-1.0", "source.sigma: must be greater than 0"),
    ("generate darcy-source --set walls=inf", "walls: must be a finite number"),
    ("generate darcy-inclusion --set inclusion.shift=0.2", "too near to the boundary"),
    ("generate darcy-inclusion --device cuda", "on the CPU only"),
    ("generate burgers-quick --scheduler daskk", "unknown scheduler 'daskk'.*dask"),
    ("benchmark standard --scheduler dask", "--scheduler dask is for pdegen generate"),
    # optimisers, schedules and losses
    (
        f"{TRAIN}optimizer.name=adam --set training.optimizer.weight_decay=-1",
        "weight_decay: must be at least 0",
    ),
    *(
        (f"{TRAIN}{kind}.name=sopa", f"unknown 'sopa', known: {', '.join(registry.known)}")
        for kind, registry in REGISTRIES.items()
        if kind != "operator"
    ),
    (f"{TRAIN}optimizer.name=sgd --set training.optimizer.momentum=1.0", "less than 1"),
    (f"{TRAIN}optimizer.name=muon --set training.optimizer.beta1=0.5", "does not apply to muon"),
    (f"{TRAIN}schedule.name=steps --set training.schedule.every=0", "every: must be at least 1"),
    (f"{TRAIN}schedule.name=cosine --set training.schedule.end=2", "end: must be less than 1"),
    (f"{TRAIN}schedule.name=steps --set training.schedule.factor=1e300", "factor: must be at most"),
    (
        f"{TRAIN}schedule.name=steps --set training.warmup=0.2",
        "warmup is a key of the schedule 1cycle, not of steps",
    ),
    (f"{TRAIN}loss.name=huber --set training.loss.delta=0", "delta: must be greater than 0"),
    # operators
    (f"{PIT}latent=[4,4]}}'", "needs one number latent"),
    (f'{PIT}attention="self-a"}}\'', "needs a latent mesh"),
    ('train burgers-quick --set \'model={name="transformer", encoding="learned"}\'', "encoding"),
    ('train burgers-quick --set \'model={name="ono", attention="relu"}\'', "attention"),
    ("evaluate burgers-gt-513 --data s.zarr", "no such checkpoint; trained models: burgers-"),
    # plugins
    ("operators --plugin absent.py", "cannot read absent.py: no such file"),
    ("operators --plugin exits.py", "exits.py, line 2: SystemExit: 3"),
    ("operators --plugin relative.py", "relative.py, line 1: ImportError"),
    ("operators --plugin raises.py", "raises.py, line 1: ValueError: no"),
    ("operators --plugin nothing.py", "registers nothing of its own"),
    ("operators --plugin taken.py", "taken.py, line 4.*'fno' is already registered"),
    # benchmark files
    ("benchmark a.toml", "extends: unknown benchmark 'standrad': did you mean standard"),
    ("benchmark b.toml", "extends forms a circle: b.toml -> b.toml"),
    ("benchmark c.toml", "extends must be the name of a benchmark or a TOML file, got 3"),
    ("benchmark d.toml", "Mine: no dataset 'burger': did you mean burgers"),
    ("benchmark e.toml", "published costs need their source"),
    ("benchmark f.toml", "FNO: published hours needs its place in sources.hours"),
    # noise
    (f"{NOISE} --method WRONG", "unknown method 'WRONG': known: 'total variation', 'Tikhonov'"),
    (f"{NOISE} --method none --method Tikhonov", "--method none excludes other methods"),
    (f"{NOISE} --model fnoo", "unknown model 'fnoo': did you mean fno"),
    (f"{NOISE} --model fno --model fno", "--model names an operator twice"),
    (f"{NOISE} --set noise.on=labels", "noise.on: must be 'inputs', 'targets' or 'both'"),
    (f"{NOISE} --set noise.on=targets --test-levels 0,0.1", "--test-levels is for noise on the"),
    (f"{NOISE} --set noise.on=targets --set noise.kind=sensors", "sensors sets inputs without"),
    (
        "run darcy-source-quick --set noise={level=0.1}",
        "noise is for inputs with one channel, a, f of recipe darcy-source has 2",
    ),
    (
        "study noise darcy-source-quick --set noise={level=0.1}",
        "noise is for inputs with one channel, a, f of recipe darcy-source has 2",
    ),
    ("study noise burgers-quick", r"has no \[noise\]: set noise.level=0.01"),
]


@pytest.mark.parametrize(("request_line", "message"), REQUESTS, ids=[r for r, _ in REQUESTS])
def test_a_wrong_request_is_one_line(refused, tmp_path, request_line, message):
    for name, text in FILES.items():
        Path(tmp_path / name).write_text(text)
    assert re.search(message, refused(*shlex.split(request_line)))


def test_the_table_has_at_least_forty_requests():
    assert len(REQUESTS) >= 40
