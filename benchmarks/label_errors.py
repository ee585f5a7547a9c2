"""Recompute the label errors shipped with the recipes.

    python -m benchmarks.label_errors [--write]

Prints the label errors of each recipe that has a reference solution, and fails if the shipped table
differs; --write writes the table. The finite-element recipe needs dolfinx.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from pdegen.generation.generate import TABLE, error_key, measured_errors, table
from pdegen.generation.pools import pool
from pdegen.recipe import load_recipe, recipe_folder, recipe_names


def entries() -> dict[str, Any]:
    """Contents of the table, computed from the recipes."""
    errors_of = dict[str, Any]()
    with pool("threads", None) as workers:
        for name in recipe_names():
            recipe = load_recipe(name)
            samples = range(recipe.problem.compared_samples)
            if samples:
                errors = measured_errors(recipe, samples, workers)
                entry = {"recipe": name, "relative_l2": [errors[i] for i in samples]}
                errors_of[error_key(recipe)] = entry
                print(json.dumps(entry), flush=True)
    return errors_of


def main() -> None:
    parser = argparse.ArgumentParser(description="Label errors of the recipes.")
    parser.add_argument("--write", action="store_true", help="write the table")
    write, errors_of = parser.parse_args().write, entries()
    if write:
        (recipe_folder() / TABLE).write_text(json.dumps(errors_of, indent=1) + "\n", "utf-8")
    elif errors_of != table():
        sys.exit(f"{TABLE} differs from the measured errors: --write updates it")


if __name__ == "__main__":
    main()
