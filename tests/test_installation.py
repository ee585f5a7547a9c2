"""The files beside the packages that install, build, and cite them agree with the packages."""

import json
import re
import shlex
import subprocess
import sys
import tomllib
import venv
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path, PurePosixPath

import jsonschema
import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import pdegen
from install import slim
from tests.absent import absent

# names of conda-forge that differ from those of the package index
CONDA = {"dask": "dask-core", "matplotlib": "matplotlib-base", "torch": "pytorch-cpu"}


@pytest.fixture(scope="module")
def project(root):
    return tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]


def needed(project) -> dict[str, Requirement]:
    return {one.name: one for one in map(Requirement, project["dependencies"])}


def test_every_dependency_and_tool_is_pinned(root, project):
    lines = (root / "constraints.txt").read_text("utf-8").splitlines()
    pinned = map(Requirement, (line for line in lines if not line.startswith("#")))
    pins = {canonicalize_name(one.name): one for one in pinned}
    tools = map(Requirement, project["optional-dependencies"]["dev"])
    own = {one.name: one for one in tools if one.name != project["name"]}
    for name, requirement in {**needed(project), **own}.items():
        (pin,) = pins[name].specifier
        assert pin.operator == "=="
        assert requirement.specifier.contains(pin.version), name


def test_conda_has_the_dependencies_and_dolfinx(root, project):
    declared = yaml.safe_load((root / "environment.yml").read_text("utf-8"))["dependencies"]
    *words, pip = declared
    found = {word.split()[0]: word.split()[1:] for word in words}
    assert "fenics-dolfinx" in found
    assert pip == {"pip": ["--editable ."]}
    for name, requirement in needed(project).items():
        assert found[CONDA.get(name, name)] == [str(requirement.specifier)], name
    assert "distributed" in found  # dask[distributed]


def test_the_version_is_said_alike(root, project):
    citation = yaml.safe_load((root / "CITATION.cff").read_text("utf-8"))
    assert project["version"] == citation["version"] == pdegen.__version__
    assert project["license"] == citation["license"]


def test_the_citation_follows_the_schema_of_its_format(root):
    try:
        package = distribution("cffconvert")
    except PackageNotFoundError:
        absent("cffconvert is missing: make test installs it")
    path = package.locate_file("cffconvert/schemas/1.2.0/schema.json")
    schema = json.loads(Path(str(path)).read_text("utf-8"))
    citation = yaml.safe_load((root / "CITATION.cff").read_text("utf-8"))
    jsonschema.validate(citation, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**citation, "licence": "MIT"}, schema)


def test_the_dockerfile_has_no_fault(root):
    linter = Path(sys.executable).with_name("hadolint")
    if not linter.exists():
        absent("hadolint is missing: make test installs it")
    said = subprocess.run(
        [linter, "--no-color", root / "Dockerfile"], capture_output=True, text=True
    )
    assert (said.returncode, said.stdout) == (0, "")


def commands(text: str) -> list[str]:
    """The lines that install, as one shell runs them."""
    joined = text.replace("\\\n", " ").replace("RUN ", "").replace("&&", "\n")
    lines = (" ".join(line.split()) for line in joined.splitlines())
    return [line for line in lines if re.match(r"(python|/opt/venv/bin/\w+) ", line)]


def test_containers_copy_what_there_is_and_install_alike(root):
    docker = (root / "Dockerfile").read_text("utf-8")
    apptainer = (root / "apptainer.def").read_text("utf-8")
    copied = []
    for line in re.findall(r"^COPY (.*)$", docker, re.M):
        *sources, place = line.split()
        assert place == "./" or [place] == sources
        copied += sources
    files = re.search(r"^%files\n(.*?)\n\n", apptainer, re.M | re.S)
    assert files is not None
    taken = [shlex.split(line) for line in files[1].splitlines()]
    assert sorted(copied) == sorted(source for source, _ in taken)
    for source, target in taken:
        assert (root / source).exists(), source
        assert target == f"/opt/pdegen/{source}"
    (image,) = set(re.findall(r"^FROM (\S+:\S+)", docker, re.M))
    assert f"\nFrom: {image}\n" in apptainer
    wanted = ["python -m venv", "/opt/venv/bin/pip install", "/opt/venv/bin/python install/slim.py"]
    assert commands(docker) == commands(apptainer.split("%environment")[0])
    starts = zip(commands(docker), wanted, strict=True)
    assert all(line.startswith(want) for line, want in starts)


def test_the_sections_of_the_apptainer_definition_are_shell(root):
    _, *sections = re.split(r"^%", (root / "apptainer.def").read_text("utf-8"), flags=re.M)
    scripts = dict(section.split("\n", 1) for section in sections)
    assert scripts.keys() == {"help", "files", "post", "environment", "runscript", "test"}
    for name in ("post", "environment", "runscript", "test"):
        subprocess.run(["sh", "-n"], input=scripts[name], text=True, check=True)


@pytest.mark.parametrize(
    ("path", "away"),
    [
        ("scipy/linalg/tests/test_solve.py", True),
        ("sympy/core/tests/__pycache__/test_a.pyc", True),
        ("torch/bin/protoc", True),
        ("torch/bin/torch_shm_manager", False),
        ("torch/include/ATen/test/a.h", False),
        ("numpy/testing/__init__.py", False),
        ("tests.py", False),
        ("../../../share/tests/a.txt", False),
    ],
)
def test_only_tests_of_packages_are_removed(path, away):
    assert slim.unread(PurePosixPath(path)) is away


@pytest.mark.parametrize(
    ("path", "smaller"),
    [
        ("torch/lib/libtorch_cpu.so", True),
        ("numcodecs/blosc.cpython-311-x86_64-linux-gnu.so", True),
        ("torch/lib/libgomp.so.1", False),
        ("numpy.libs/libopenblas.so", False),  # whose loading segments were moved
        ("../../../bin/torch.so", False),
    ],
)
def test_the_largest_libraries_lose_their_symbol_tables(path, smaller):
    assert slim.library(PurePosixPath(path)) is smaller


@pytest.mark.parametrize(
    ("program", "content"),
    [
        ('head -c 10 "$4" > "$3"', b"#" * 10),
        ('head -c 10 "$4" > "$3"; exit 1', b"#" * 100),  # no library that it knows
        ('cat "$4" "$4" > "$3"', b"#" * 100),
        ("exit 1", b"#" * 100),
    ],
)
def test_a_library_is_replaced_where_that_saves(tmp_path, program, content):
    strip, library = tmp_path / "strip", tmp_path / "lib.so"
    strip.write_text(f"#!/bin/sh\n{program}\n")
    strip.chmod(0o755)
    library.write_bytes(b"#" * 100)
    library.chmod(0o755)
    assert slim.stripped(library, str(strip)) == 100 - len(content)
    assert library.read_bytes() == content
    assert {file.name for file in tmp_path.iterdir()} == {"strip", "lib.so"}
    assert library.stat().st_mode & 0o777 == 0o755


def test_slim_removes_those_of_installed_packages(root, tmp_path):
    venv.create(tmp_path / "v", symlinks=True)
    (site,) = tmp_path.glob("v/lib/python*/site-packages")
    made = ["a/__init__.py", "a/tests/__init__.py", "a/tests/data/x.bin"]
    for name in [*made, "b/tests/kept.py"]:  # b is no installed package
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_bytes(b"#" * 1_000_000)
    (site / "a-1.dist-info").mkdir()
    (site / "a-1.dist-info/METADATA").write_text("Name: a\nVersion: 1\n")
    (site / "a-1.dist-info/RECORD").write_text("".join(f"{name},,\n" for name in made))
    script = root / "install/slim.py"
    said = subprocess.run(
        [tmp_path / "v/bin/python", script],
        env={"PATH": ""}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert said.stdout == "removed tests of installed packages: 2 MB\n"
    left = {str(path.relative_to(site)) for path in site.rglob("*") if path.is_file()}
    assert {"a/__init__.py", "b/tests/kept.py"} <= left
    assert not left & set(made[1:])


def test_slim_refuses_what_is_no_virtual_environment(monkeypatch):
    """In this process and without packages: a fault must not reach those of the machine."""
    monkeypatch.setattr(slim, "distributions", lambda path: [])
    monkeypatch.setattr(sys, "prefix", sys.base_prefix)
    with pytest.raises(SystemExit, match="virtual environment"):
        slim.main()
