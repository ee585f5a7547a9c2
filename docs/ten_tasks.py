"""Runs the tasks of ten-tasks.md in an empty folder and prints the time of each.

python docs/ten_tasks.py [PAGE]
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).parent
TASK = re.compile(r"^## (\d+)\. (.*)\n(?:.*\n)*?```sh\n((?:.*\n)*?)```", re.M)


def tasks(text: str) -> Iterator[tuple[str, list[str]]]:
    """The title and the commands of each task of the page; continued lines are joined."""
    for number, title, commands in TASK.findall(text):
        yield f"{number}. {title}", commands.replace("\\\n", " ").splitlines()


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("page", nargs="?", type=Path, default=HERE / "ten-tasks.md")
    page = options.parse_args().page.read_text("utf-8")
    with tempfile.TemporaryDirectory() as folder:
        for file in (HERE / "examples").iterdir():
            if file.is_file():
                shutil.copy(file, folder)
        # commands of this Python's environment come first
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        for title, commands in tasks(page):
            begun = time.monotonic()
            for command in commands:
                done = subprocess.run(
                    ["bash", "-c", command], cwd=folder, env={**os.environ, "PATH": path},
                    stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                )  # fmt: skip
                if done.returncode:
                    sys.exit(f"{title}\n$ {command}\n{done.stdout}")
            took = time.monotonic() - begun
            print(f"{title}: {len(commands)} commands, {took:.0f} s", flush=True)


if __name__ == "__main__":
    main()
