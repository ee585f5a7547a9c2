"""Moving parts of a report have its numbers, in their order, and load nothing."""

from __future__ import annotations

import hashlib
import json
import re
from base64 import b64decode, b64encode
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pipelines.reports.document import Picture, scientific
from pipelines.reports.pictures import (
    BYTES,
    MOST,
    Slide,
    by_error,
    with_slides,
)


def page(run: Path) -> str:
    return (run / "report.html").read_text("utf-8")


@pytest.mark.parametrize("kind", ["finished", "published", "darcy", "inverse"])
def test_samples_slide_from_the_smallest_to_the_largest_error(kind, request):
    run, _ = request.getfixturevalue(kind)
    scores = json.loads((run / "scores.json").read_text("utf-8"))
    grid = scores["experiment"]["data"]["resolution"]
    result = next(r for r in scores["results"] if r["resolution"] == grid)
    first, e = result["first_sample"], np.array(result["errors"])
    labels = re.findall(
        r'data-label="number (\d+) in the store, error (\S+), rank (\d+)', page(run)
    )
    assert [int(number) - first for number, _, _ in labels] == np.argsort(e).tolist()
    assert [said for _, said, _ in labels] == [scientific(float(v)) for v in np.sort(e)]
    assert [int(rank) for _, _, rank in labels] == [*range(1, len(e) + 1)]
    middle = (len(e) - 1) // 2 + 1
    assert f'data-word="sample" data-start="{middle}"' in page(run)


def test_of_many_samples_some_slide_with_both_ends_and_the_median():
    errors = np.random.default_rng(0).permutation(1000) / 1000
    ranks = (1000 * errors[by_error(errors)]).round().astype(int).tolist()
    assert len(ranks) == MOST
    assert ranks == sorted(set(ranks))
    assert {0, 499, 999} <= set(ranks)
    assert max(np.diff(ranks)) < 2 * 1000 / MOST
    assert by_error(np.array([0.2])) == [0]
    assert by_error(np.array([0.2, 0.1])) == [1, 0]


def test_images_keep_their_pixels_and_their_number_is_bounded():
    rng = np.random.default_rng(0)
    noise = [Image.fromarray(rng.integers(0, 255, (300, 400, 3), "uint8")) for _ in range(12)]
    slides = [Slide(image, f"{k}", f"picture <{k}>") for k, image in enumerate(noise)]
    live = with_slides(Picture("p", "p", "<svg/>"), slides, "sample", start=6).live
    files = [b64decode(text) for text in re.findall(r"base64,([^\"]+)", live)]
    assert sum(map(len, files)) <= BYTES
    labels = [int(text) for text in re.findall(r'data-label="(\d+)"', live)]
    assert 1 < len(labels) < 12
    for k, data in zip(labels, files, strict=True):
        assert (np.asarray(Image.open(BytesIO(data))) == np.asarray(noise[k])).all()
    assert "picture &lt;0&gt;" in live


def test_the_page_allows_its_own_script_alone(finished):
    html = page(finished[0])
    (script,) = re.findall(r'<script type="module">(.*?)</script>', html, re.S)
    digest = b64encode(hashlib.sha256(script.encode()).digest()).decode()
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]+)"', html)
    policy = policy.replace("&#39;", "'")
    assert f"script-src 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy
    assert not re.search(
        r"\beval\b|new Function|innerHTML|fetch\(|import\(|https?://(?!www.w3)", script
    )
    assert html.index("Content-Security-Policy") < html.index("<script")
