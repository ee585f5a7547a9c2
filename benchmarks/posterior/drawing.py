"""Rank histograms."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import numpy as np


def drawn(histograms: dict[str, np.ndarray], path: Path) -> None:
    """Draw rank histograms side by side, relative to the expected counts."""
    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, len(histograms), figsize=(9, 2.4), sharey=True)
    for ax, (name, counts) in zip(axes, histograms.items(), strict=True):
        ax.bar(np.arange(len(counts)), counts / counts.mean(), width=1.0, edgecolor="white")
        ax.axhline(1, color="black", linewidth=0.8)
        ax.set(title=name, xlabel="rank of the truth", xticks=[])
    axes[0].set_ylabel("count / expected")
    figure.tight_layout()
    figure.savefig(path, dpi=120)
