"""What an installed wheel carries."""

import zipfile

from hatchling.builders.wheel import WheelBuilder


def test_carries_recipes_experiments_and_the_template_of_the_report(root, tmp_path):
    wheel = next(WheelBuilder(str(root)).build(directory=str(tmp_path)))
    names = set(zipfile.ZipFile(wheel).namelist())
    recipes = {f"pdegen/datasets/{path.name}" for path in (root / "datasets").glob("*.toml")}
    experiments = {
        f"pipelines/declared/experiments/{path.name}"
        for path in (root / "pipelines/declared/experiments").glob("*.toml")
    }
    assert recipes
    assert experiments
    assert recipes | experiments | {"pipelines/reports/report.html.jinja"} <= names
    assert not any(name.startswith(("datasets/", "tests/", "benchmarks/")) for name in names)
