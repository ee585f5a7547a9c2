"""Every key of recipes, experiments and benchmarks against a table of defaults and bounds.

A default that changes gives another meaning to files that do not name the key. The table is
changed by hand, or written anew by `python -m tests.pipelines.test_all_keys`, and read line by
line before it is committed. The keys of a new equation or operator are compared once the table has
one of them.
"""

import json
import re
from pathlib import Path

import torch

from operators.norms import RelativeH1, WeightedH1
from operators.symmetries import TorusSymmetries
from operators.training.fit import Settings
from operators.training.optimizers import SOAP, Adam
from operators.training.schedules import OneCycle
from pdegen.recipe import Recipe
from pipelines.config.benchmark import Benchmark
from pipelines.config.experiment import Experiment
from pipelines.config.keys import keys_of

TABLE = Path(__file__).parent / "keys.txt"
DECLARATIONS = {"recipe": Recipe, "experiment": Experiment, "benchmark": Benchmark}


def lines() -> list[str]:
    """Key, the choice that it belongs to, what is allowed, and the default."""
    return [
        " | ".join(
            [
                f"{declaration} {key.name}",
                key.when,
                key.allowed,
                "required" if key.required else json.dumps(key.default, ensure_ascii=False),
            ]
        )
        for declaration, model in DECLARATIONS.items()
        for key in keys_of(model)
        if declaration == "experiment" or ".models.NAME." not in key.name  # as an experiment's
    ]


def owner(line: str) -> str | None:
    """The equation or the operator whose key this is; None for other keys."""
    found = re.search(r"(?:problem\.equation|model\.name) = ([\w-]+)", line.split(" | ")[1])
    return found[1] if found else None


def recorded() -> list[str]:
    return TABLE.read_text(encoding="utf-8").splitlines()


def test_every_key_has_the_default_and_the_bounds_of_the_table():
    known = {None, *map(owner, recorded())}
    assert [line for line in lines() if owner(line) in known] == recorded()


def test_keys_of_equations_and_operators_have_an_owner():
    assert {"burgers", "semilinear", "fno", "transolver"} <= set(map(owner, recorded()))


def test_the_library_has_the_defaults_of_the_commands():
    """Where it is called without the argument that a key sets."""
    settings = Settings(loss=RelativeH1())
    for name in ("epochs", "batch", "lr", "clip", "seed", "average"):
        row = f"experiment training.{name} | "
        default = next(line for line in lines() if line.startswith(row)).rpartition(" | ")[2]
        assert json.loads(default) == getattr(settings, name), name
    assert settings.schedule == OneCycle()
    assert settings.optimizer == Adam()
    assert settings.cycle_momentum
    assert (RelativeH1().gamma, RelativeH1().periodic) == (0.1, True)
    assert (WeightedH1().gamma, WeightedH1().published) == (0.5, False)
    circle = TorusSymmetries()
    assert (circle.shift, circle.reflection) == (True, True)
    group = SOAP([torch.nn.Parameter(torch.ones(2, 2))]).param_groups[0]
    assert {k: group[k] for k in ("lr", "betas", "basis_decay", "every", "eps")} == {
        "lr": 3e-3, "betas": (0.95, 0.95), "basis_decay": 0.95, "every": 10, "eps": 1e-8,
    }  # fmt: skip


if __name__ == "__main__":
    TABLE.write_text("\n".join(lines()) + "\n", encoding="utf-8")
