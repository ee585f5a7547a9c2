"""Answer a test set by the nearest validation sample: python nearest_sample.py SET FOLDER."""

import sys
from pathlib import Path

import numpy as np

testset, out = map(Path, sys.argv[1:])
out.mkdir()
(out / "method.toml").write_text('name = "nearest sample"\n')
upper = np.load(testset / "validation" / "truth.npz")["upper"]  # (samples, n, n)
for file in sorted((testset / "data").glob("*.npz")):
    values = np.load(file)["values"]  # (samples, sensors)
    known = np.load(testset / "validation" / file.name)["values"]
    nearest = ((values[:, None] - known) ** 2).sum(axis=2).argmin(axis=1)
    np.save(out / f"{file.stem}.npy", np.where(upper[nearest], 12.0, 3.0))
