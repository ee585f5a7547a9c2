"""Planted faults: which of them do the tests notice? `python -m benchmarks.planted FAULTS.json`.

A file of faults names a commit and, for each fault, a file, a text that occurs in it once, and a
replacement. The commit is checked out into a temporary folder. Its suite runs once with probes in
the faulty functions, which record the tests that call them (a compiled function has no probe: its
fault names test files). Tests that fail in this run are listed. Then each fault is planted alone,
and the tests that call its function run until one fails. A fault is noticed if a test fails.

The outcome is written into the file after every fault; a later call continues with the rest.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

ROOT = Path(__file__).parents[1]
# largest number of tests per fault; tests that call its function outside fixtures come first
FIRST = 200
PROBE = (
    "[h.add({n}) or print(t, file=f) or f.close() for o in [__import__('os')] "
    "for t in [o.environ.get('PYTEST_CURRENT_TEST', '')] for h in [__import__('sys').__dict__"
    ".setdefault('_hits_' + t, set())] if t and {n} not in h "
    "for f in [__import__('io').open({folder!r} + '/{n}', 'a')]]"
)


@contextmanager
def checked_out(commit: str) -> Iterator[Path]:
    """Temporary working tree of a commit, with the environment of this checkout."""
    with tempfile.TemporaryDirectory(prefix="planted-") as folder:
        tree = Path(folder) / "tree"
        git = ("git", "-C", str(ROOT), "worktree")
        subprocess.run([*git, "add", "--quiet", "--detach", str(tree), commit], check=True)
        try:
            (tree / ".venv").symlink_to((ROOT / ".venv").resolve())
            yield tree
        finally:
            subprocess.run([*git, "remove", "--force", str(tree)], check=True)


def pytest(tree: Path, *words: str, limit: float) -> tuple[int | None, str]:
    """Run pytest in a tree.

    Returns:
        The exit status, or None after `limit` seconds, and the first test that failed.
    """
    environment = {
        **os.environ, "PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE",
        "OPENBLAS_NUM_THREADS": "1",
    }  # fmt: skip
    output = tree / "output.txt"
    with output.open("w") as file:
        process = subprocess.Popen(
            [".venv/bin/python", "-m", "pytest", "-m", "not slow", "--timeout", "300", *words],
            cwd=tree, env=environment, start_new_session=True, stdout=file, stderr=file,
        )  # fmt: skip
    try:
        status = process.wait(limit)
    except subprocess.TimeoutExpired:
        status = None
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    failed = re.search(r"^(?:FAILED|ERROR) (.*?)(?: - .*)?$", output.read_text("utf-8"), re.M)
    return status, failed[1] if failed else ""


def innermost(tree: ast.Module, line: int) -> ast.FunctionDef | None:
    """The innermost function that contains a line, unless Numba compiles it."""
    inside = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.lineno <= line <= (node.end_lineno or 0)
    ]
    compiled = any("jit" in ast.unparse(d) for node in inside for d in node.decorator_list)
    if not inside or compiled:
        return None
    return max(inside, key=lambda node: node.lineno)


def probed(tree: Path, faults: list[dict[str, Any]], folder: Path) -> None:
    """Insert probes into the functions of the faults."""
    lines: dict[Path, list[tuple[int, int, str]]] = {}
    for number, fault in enumerate(faults):
        path = tree / fault["file"]
        text = path.read_text("utf-8")
        line = text[: text.index(fault["old"])].count("\n") + 1
        function = innermost(ast.parse(text), line)
        if function is None:
            continue
        body = function.body
        documented = isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant)
        at = body[1] if documented and len(body) > 1 else body[0]
        probe = " " * at.col_offset + PROBE.format(n=number, folder=str(folder))
        lines.setdefault(path, []).append((at.lineno, number, probe))
    for path, probes in lines.items():
        text = path.read_text("utf-8").splitlines()
        for line, _, probe in sorted(probes, reverse=True):
            text.insert(line - 1, probe)
        path.write_text("\n".join(text) + "\n", "utf-8")


def outcomes(report: Path) -> tuple[dict[str, float], list[str]]:
    """Seconds of each test in pytest's report by class name and name, and the tests that failed."""
    seconds, failed = dict[str, float](), list[str]()
    for case in ElementTree.parse(report).iter("testcase"):
        name = f"{case.get('classname')}.{case.get('name')}"
        seconds[name] = float(case.get("time", 0))
        if case.find("failure") is not None or case.find("error") is not None:
            failed.append(name)
    return seconds, failed


def tests_of(fault: dict[str, Any], seconds: Mapping[str, float]) -> list[str]:
    """Tests to run, short ones first; whole files if a fixture calls the function."""
    if "files" in fault:
        return fault["files"]
    hits = fault["hits"]
    files = sorted({h.partition("::")[0] for h in hits if h.endswith(" (setup)")})
    calls = [h.removesuffix(" (call)") for h in hits if h.endswith(" (call)")]
    calls = [call for call in calls if call.partition("::")[0] not in files]

    def cost(call: str) -> float:
        file, _, name = call.partition("::")
        return seconds.get(f"{file.removesuffix('.py').replace('/', '.')}.{name}", 1.0)

    return [*sorted(calls, key=cost)[:FIRST], *files]


def outcome(tree: Path, tests: list[str], path: Path, text: str, limit: float) -> tuple[str, str]:
    """Outcome with the text of a faulty module, and the test that fails only with it, if any."""
    original, end, deselected = path.read_text("utf-8"), time.monotonic() + limit, list[str]()
    while tests:
        path.write_text(text, "utf-8")
        left = max(1.0, end - time.monotonic())
        status, failed = pytest(tree, "-x", *tests, *deselected, limit=left)
        path.write_text(original, "utf-8")
        if status == 0:
            return "unnoticed", ""
        if status is None:
            return "unnoticed in time", ""
        if not failed or pytest(tree, failed, limit=limit)[0] != 1:
            return "noticed", failed
        deselected += ["--deselect", failed]  # it fails without the fault as well
    return "no test enters it", ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=_Formatter)
    parser.add_argument("faults", type=Path)
    parser.add_argument("--processes", default="3", help="number of pytest's workers")
    parser.add_argument("--limit", type=float, default=300, help="seconds for one fault")
    arguments = parser.parse_args()
    content = json.loads(arguments.faults.read_text("utf-8"))
    faults = content["faults"]

    def save() -> None:
        text = json.dumps(content, indent=1, ensure_ascii=False) + "\n"
        arguments.faults.write_text(text, "utf-8")

    with checked_out(content["commit"]) as tree:
        originals = {f["file"]: (tree / f["file"]).read_text("utf-8") for f in faults}
        for fault in faults:
            if originals[fault["file"]].count(fault["old"]) != 1:
                sys.exit(f"{fault['name']}: the text does not stand once in {fault['file']}")
        if "probed" not in content:
            folder = tree / "hits"
            folder.mkdir()
            probed(tree, faults, folder)
            words = ("-n", arguments.processes, "--dist", "worksteal")
            report = tree / "report.xml"
            pytest(tree, *words, f"--junitxml={report}", limit=7200)
            used = resource.getrusage(resource.RUSAGE_CHILDREN)
            content["processor_seconds"] = round(used.ru_utime + used.ru_stime)
            content["seconds"], content["failed_without_a_fault"] = outcomes(report)
            for number, fault in enumerate(faults):
                hits = folder / str(number)
                text = hits.read_text("utf-8") if hits.exists() else ""
                fault["hits"] = sorted({line for line in text.splitlines() if line})
            for file, text in originals.items():
                (tree / file).write_text(text, "utf-8")
            content["probed"] = True
            save()
        for fault in faults:
            if "outcome" in fault:
                continue
            path, start = tree / fault["file"], time.monotonic()
            text = originals[fault["file"]].replace(fault["old"], fault["new"])
            tests = tests_of(fault, content["seconds"])
            fault["outcome"], fault["by"] = outcome(tree, tests, path, text, arguments.limit)
            took = round(time.monotonic() - start)
            save()
            print(f"{fault['outcome']:18} {took:4} s  {fault['name']}  {fault['by']}", flush=True)
    noticed = sum(f["outcome"] == "noticed" for f in faults)
    print(f"{noticed} of {len(faults)} faults noticed, commit {content['commit']}")


_Formatter = argparse.RawDescriptionHelpFormatter

if __name__ == "__main__":
    main()
