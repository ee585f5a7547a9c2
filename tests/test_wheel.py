"""Contents of a wheel, and its page on a package index."""

import email
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

from install.readme import absolute

RELATIVE = re.compile(r"]\((?!https?:|mailto:|#)")


@pytest.fixture(scope="module")
def wheel(root, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    return Path(next(WheelBuilder(str(root)).build(directory=str(folder))))


def long_description(wheel: Path) -> str:
    archive = zipfile.ZipFile(wheel)
    (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
    message = email.message_from_bytes(archive.read(name))
    assert message["Name"] == "pdegen-operators"
    assert message["Description-Content-Type"] == "text/markdown"
    return archive.read(name).decode().split("\n\n", 1)[1]


def test_carries_recipes_experiments_and_the_template_of_the_report(root, wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    recipes = {f"pdegen/datasets/{path.name}" for path in (root / "datasets").glob("*.toml")}
    experiments = {
        f"pipelines/config/experiments/{path.name}"
        for path in (root / "pipelines/config/experiments").glob("*.toml")
    }
    assert recipes
    assert experiments
    assert recipes | experiments | {"pipelines/reports/report.html.jinja"} <= names
    assert not any(name.startswith(("datasets/", "tests/", "benchmarks/")) for name in names)
    assert not any(name.startswith("install/") for name in names)


def test_works_outside_a_checkout(root, wheel, tmp_path):
    zipfile.ZipFile(wheel).extractall(tmp_path / "site")
    program = (
        "import sys, pdegen\n"
        "print(pdegen.__file__, *pdegen.recipes(), sep='\\n')\n"
        "assert 'torch' not in sys.modules\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}
    said = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path, env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    where, *recipes = said.stdout.splitlines()
    assert where == str(tmp_path / "site/pdegen/__init__.py")
    assert set(recipes) == {path.stem for path in (root / "datasets").glob("*.toml")}


def test_its_page_has_no_relative_link(root, wheel):
    text = long_description(wheel)
    assert not RELATIVE.search(text)
    for word in ("# pdegen\n", "make demo", "pdegen generate burgers-quick"):
        assert word in text
    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]
    source = project.get("urls", {}).get("Source")
    assert text.strip() == absolute((root / "README.md").read_text("utf-8"), source).strip()


def test_one_setting_makes_its_links_and_pictures_absolute(root):
    readme = (root / "README.md").read_text("utf-8")
    text = absolute(readme, "https://example.org/pdegen")
    assert not RELATIVE.search(text)
    address = r"]\(https://example\.org/pdegen/(blob|raw)/HEAD/([^)#]+)"
    found = [path for _, path in re.findall(address, text)]
    assert found == re.findall(r"]\(([^):#]+)(?:#[^)]*)?\)", readme)
    pictures = re.findall(r"^!\[.*]\((.*)\)$", text, re.MULTILINE)
    assert pictures
    assert all(one.startswith("https://example.org/pdegen/raw/HEAD/docs/") for one in pictures)


def test_blocks_of_code_keep_what_looks_like_a_link():
    text = "[a](b.md)\n\n```python\nf[a](b)\n```\n\n![p](p.png)\n"
    assert absolute(text, None) == "a\n\n```python\nf[a](b)\n```\n\n\n"
