"""The label errors that come with the recipes, measured again.

    python -m benchmarks.label_errors [--write]

Prints those of each recipe that has a reference solution, and fails where the table beside the
recipes has others; --write writes the table. The recipe of finite elements needs dolfinx.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from pdegen.generation.engines import pool
from pdegen.generation.measurements import TABLE, error_key, measured_errors, table
from pdegen.recipe import load_recipe, recipe_folder, recipe_names


def entries() -> dict[str, Any]:
    """What the table should hold."""
    found = dict[str, Any]()
    with pool("threads", None) as workers:
        for name in recipe_names():
            recipe = load_recipe(name)
            samples = range(recipe.problem.compared_samples)
            if samples:
                errors = measured_errors(recipe, samples, workers)
                entry = {"recipe": name, "relative_l2": [errors[i] for i in samples]}
                found[error_key(recipe)] = entry
                print(json.dumps(entry), flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="Label errors of the recipes.")
    parser.add_argument("--write", action="store_true", help="write the table")
    write, found = parser.parse_args().write, entries()
    if write:
        (recipe_folder() / TABLE).write_text(json.dumps(found, indent=1) + "\n", "utf-8")
    elif found != table():
        sys.exit(f"{TABLE} has other figures: --write replaces them")


if __name__ == "__main__":
    main()
