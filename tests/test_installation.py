"""The files beside the packages that install, build, and cite them agree with the packages."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
import tomllib
import venv
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path, PurePosixPath
from threading import Event, Thread

import jsonschema
import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import pdegen
from install import pytorch, slim
from tests import pins
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
    wanted = [
        "python -m venv", "/opt/venv/bin/python install/pytorch.py", "/opt/venv/bin/pip install",
        "/opt/venv/bin/python install/slim.py",
    ]  # fmt: skip
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


TORCH = pytorch.pinned()


def wheel(version: str, folder: Path) -> Path:
    """An empty package called torch, whose file says which build it is."""
    path = folder / f"torch-{version}-py3-none-any.whl"
    info = f"torch-{version}.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(
            f"{info}/METADATA", f"Metadata-Version: 2.1\nName: torch\nVersion: {version}\n"
        )
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")
    return path


@contextmanager
def index(*versions: str, folder: Path, silent: bool = False) -> Iterator[str]:
    """The address of an index that has these builds of torch; a silent one never answers."""
    files = {path.name: path for path in (wheel(version, folder) for version in versions)}
    end = Event()

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if silent:
                self.send_response(200)
                self.end_headers()
                while not end.wait(0.2):  # each byte starts the limit of the socket again
                    self.wfile.write(b" ")
                return
            name = self.path.rsplit("/", 1)[-1].replace("%2B", "+")
            links = "".join(f'<a href="../{n.replace("+", "%2B")}">{n}</a>' for n in files)
            body = files[name].read_bytes() if name in files else links.encode()
            known = name in files or self.path.rstrip("/").endswith("/torch")
            self.send_response(200 if known else 404)
            self.send_header("Content-Type", "application/zip" if name in files else "text/html")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *words: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        end.set()
        server.shutdown()
        server.server_close()


@pytest.fixture(scope="module")
def environment(tmp_path_factory) -> Path:
    """The Python of a virtual environment that has pip alone."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder / "v", with_pip=True, symlinks=True)
    return folder / "v/bin/python"


@pytest.mark.parametrize(
    ("settings", "cpus", "driver", "build", "line"),
    [
        (("",), ("+cpu",), False, "+cpu", f"PyTorch {TORCH} for CPUs: 1.1 GB"),
        (("", "+cpu"), (), False, "+cpu", "which pip's settings offer: 1.1 GB"),
        (("", "+cu130"), ("+cpu",), False, "+cu130", "which pip's settings offer: 4.9 GB"),
        (("",), ("+cpu",), True, "", "an NVIDIA driver was found"),
        (("",), None, False, "", "does not answer ("),
        (("",), ("+other",), False, "", f"has no PyTorch {TORCH}, so pip installs what it finds"),
    ],
)
def test_the_build_for_cpus_is_installed_without_a_driver(
    environment, tmp_path, monkeypatch, capfd, settings, cpus, driver, build, line
):
    for place in ("pip", "cpu"):
        (tmp_path / place).mkdir()
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setattr(sys, "executable", str(environment))
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(pytorch, "is_installed", lambda version: False)
    monkeypatch.setattr(pytorch, "has_driver", lambda: driver)
    run = [str(environment), "-m", "pip", "uninstall", "--yes", "--quiet", "torch"]
    subprocess.run(run, check=True, capture_output=True)
    with (
        index(*(TORCH + label for label in settings), folder=tmp_path / "pip") as pip,
        index(*(TORCH + label for label in cpus or ()), folder=tmp_path / "cpu") as other,
    ):
        monkeypatch.setenv("PIP_INDEX_URL", pip)
        address = other if cpus is not None else "http://127.0.0.1:1"  # where nothing listens
        monkeypatch.setattr(sys, "argv", ["install/pytorch.py", "--index", address])
        with pytest.raises(SystemExit) as end:
            pytorch.main()
    assert end.value.code == 0
    assert line in capfd.readouterr().out.splitlines()[0]
    found = subprocess.run(
        [environment, "-c", "from importlib.metadata import version; print(version('torch'))"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert found.stdout.strip() == TORCH + build


@pytest.mark.parametrize("listed", [f"torch-{TORCH}%2Bcpu-cp311", f"torch-{TORCH}+cpu-cp311"])
def test_an_index_is_asked_for_the_version(tmp_path, listed):
    with index(f"{TORCH}+cpu", folder=tmp_path) as address:
        assert pytorch.fault_of(address, TORCH) is None
        assert pytorch.fault_of(address, "9.9.9") == "has no PyTorch 9.9.9"


def test_an_index_that_does_not_answer_in_time_is_left(tmp_path):
    with index(folder=tmp_path, silent=True) as address:
        begun = time.monotonic()
        fault = pytorch.fault_of(address, TORCH, seconds=1.0)
        assert fault == "does not answer within 1 s"
        assert 1.0 <= time.monotonic() - begun < 4.0
    assert pytorch.SECONDS == 5.0
    refused = pytorch.fault_of(address, TORCH)  # nothing listens there any more
    assert refused is not None
    assert refused.startswith("does not answer (")


def test_where_no_index_for_cpus_answers_one_line_says_what_is_installed(monkeypatch):
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(pytorch, "has_driver", lambda: False)
    monkeypatch.setattr(pytorch, "offered", lambda version: None)
    monkeypatch.setattr(pytorch, "fault_of", lambda index, version: "does not answer within 5 s")
    further, line = pytorch.choice(TORCH, pytorch.INDEX)
    assert further == []
    assert "does not answer within 5 s" in line
    assert "4.9 GB" in line
    assert "\n" not in line


def test_a_driver_is_found_by_its_program_or_its_library(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(pytorch, "LIBRARY", "libabsent-4711.so")
    assert not pytorch.has_driver()
    monkeypatch.setattr(pytorch, "LIBRARY", "libc.so.6" if sys.platform == "linux" else None)
    assert pytorch.has_driver()
    monkeypatch.setattr(pytorch, "LIBRARY", "libabsent-4711.so")
    (tmp_path / "nvidia-smi").write_text("#!/bin/sh\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    assert pytorch.has_driver()


def test_an_installed_build_stays(root, environment, tmp_path):
    path = wheel(f"{TORCH}+own", tmp_path)
    run = [str(environment), "-m", "pip", "install", "--quiet", "--no-index", "--force-reinstall"]
    subprocess.run([*run, str(path)], check=True, capture_output=True)
    done = subprocess.run(
        [environment, root / "install/pytorch.py"], capture_output=True, text=True, check=True
    )
    assert done.stdout == ""


@pytest.fixture
def stand_ins(root, tmp_path):
    """A checkout whose programs write into `log` how they were called, and do nothing else."""
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(root / name, tmp_path)
    shutil.copytree(root / "install", tmp_path / "install")
    (tmp_path / ".venv/bin").mkdir(parents=True)
    for name in ("python", "pip", "ruff", "lint-imports", "pyright"):
        program = tmp_path / ".venv/bin" / name
        program.write_text(f'#!/bin/sh\necho "{name} $*" >> "{tmp_path}/log"\n')
        program.chmod(0o755)

    def make(target: str) -> list[str]:
        (tmp_path / "log").write_text("")
        command = ["make", target, "PYTHON=true"]
        subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
        return (tmp_path / "log").read_text().splitlines()

    return make


def test_settings_of_tools_do_not_install_again(stand_ins, tmp_path):
    def installs() -> bool:
        return any("pip install" in line for line in stand_ins("lint"))

    assert installs()
    assert not installs()
    project = tmp_path / "pyproject.toml"
    later = time.time() + 10
    project.write_text(project.read_text() + "\n[tool.mine]\nkey = 1\n")
    os.utime(project, (later, later))
    assert not installs()
    project.write_text(project.read_text().replace('"zarr>=', '"six", "zarr>='))
    os.utime(project, (later + 10, later + 10))
    assert installs()


def test_check_reads_the_types_of_changed_packages_alone(stand_ins, tmp_path):
    def git(*words: str) -> None:
        author = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
        subprocess.run(["git", *author, *words], cwd=tmp_path, check=True, capture_output=True)

    def typed() -> list[str]:
        return [line for line in stand_ins("check") if line.startswith("pyright")]

    def tested() -> str:
        return next(line for line in stand_ins("check") if "test_structure" in line)

    files = ("pdegen/store/a.py", "pdegen/top.py", "operators/nn/a.py", "tests/a.py")
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / ".gitignore").write_text(".venv\nbuild\nlog\n")
    git("init", "--quiet")
    git("add", ".")
    git("commit", "--quiet", "--message", "one")
    git("commit", "--quiet", "--allow-empty", "--message", "two")
    assert typed() == []
    (tmp_path / "pdegen/store/a.py").write_text("a = 1\n")
    (tmp_path / "tests/a.py").write_text("a = 1\n")
    (tmp_path / "operators/nn/new.py").touch()
    assert typed() == ["pyright operators/nn pdegen/store"]
    assert tested().endswith("tests/test_structure.py")
    (tmp_path / "tests/test_new.py").touch()
    assert tested().endswith("tests/test_structure.py tests/test_new.py")
    git("rm", "--quiet", "pdegen/top.py")
    git("add", ".")
    git("commit", "--quiet", "--message", "three")
    assert typed() == ["pyright operators/nn pdegen/store"]


def test_every_installed_package_supports_the_oldest_python(root, project):
    """The pins of every extra that is installed here; `make plain` does it for those of docs."""
    oldest = project["requires-python"].removeprefix(">=") + ".0"
    assert f"Python {oldest[:-2]} or newer" in (root / "README.md").read_text("utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "tests.pins", oldest], cwd=root, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (0, "")


def test_a_package_for_newer_pythons_alone_is_named():
    assert pins.faults({"a": ">=3.11.5", "b": ">=3.9", "c": None}, "3.11.0") == [
        "a needs Python >=3.11.5, the oldest supported is 3.11.0"
    ]


def test_hooks_of_commits_run_the_tools_of_the_environment(root):
    declared = yaml.safe_load((root / ".pre-commit-config.yaml").read_text("utf-8"))
    hooks = [hook for repository in declared["repos"] for hook in repository["hooks"]]
    assert {hook["language"] for hook in hooks} == {"system"}
    tools = [Path(hook["entry"].split()[0]) for hook in hooks]
    assert [tool.name for tool in tools] == ["ruff", "ruff", "lint-imports"]
    assert {tool.parent for tool in tools} == {Path(".venv/bin")}
    assert all(Path(sys.executable).with_name(tool.name).exists() for tool in tools)


def test_the_workflow_runs_what_every_continuous_integration_runs(root, project):
    workflow = yaml.safe_load((root / ".github/workflows/ci.yml").read_text("utf-8"))
    (job,) = workflow["jobs"].values()
    assert [step["run"] for step in job["steps"] if "run" in step] == [".ci/run"]
    assert os.access(root / ".ci/run", os.X_OK)
    (python,) = (step["with"] for step in job["steps"] if "setup-python" in step.get("uses", ""))
    assert f">={python['python-version']}" == project["requires-python"]


def test_editors_break_lines_where_the_formatter_does(root):
    tools = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["tool"]
    editors = (root / ".editorconfig").read_text("utf-8")
    assert f"max_line_length = {tools['ruff']['line-length']}\n" in editors.split("\n[*.md]")[0]
    assert "[Makefile]\nindent_style = tab\n" in editors
