"""Marks of a generated test set, which `pdegen testset --verify` compares other folders with:

python -m benchmarks.testset_marks sets/NAME > pipelines/config/testsets/NAME.json
"""

import json
import sys
from dataclasses import astuple
from pathlib import Path

from pipelines.studies.testset import TestSetFolder


def main(folder: str) -> None:
    marks = TestSetFolder(Path(folder)).marks
    lines = (f"{json.dumps(key)}: {json.dumps(astuple(mark))}" for key, mark in marks.items())
    print("{\n" + ",\n".join(lines) + "\n}")


if __name__ == "__main__":
    main(*sys.argv[1:])
