"""Reports on paper: tables that pdflatex sets, pages that Chromium prints."""

from __future__ import annotations

import html
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

from tests.absent import absent

_DOCUMENT = r"""\documentclass[a4paper]{article}
\usepackage{amsmath, array, booktabs, tabularx}
\begin{document}
%s
\end{document}
"""


def too_wide(tables: Path, folder: Path) -> list[float]:
    """By how many points tables are wider than the text, those of less than two letters left out.

    Args:
        tables: Folder of *.tex, each for \\input; pdflatex fails on none.
        folder: For what pdflatex writes.
    """
    if shutil.which("pdflatex") is None:
        absent("setting tables needs pdflatex: make paper")
    files = sorted(tables.glob("*.tex"))
    assert files
    inputs = [rf"\input{{{path.resolve()}}}\clearpage" for path in files]
    (folder / "all.tex").write_text(_DOCUMENT % "\n".join(inputs))
    command = ["pdflatex", "-halt-on-error", "-interaction=nonstopmode", "all.tex"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout[-2000:]
    found = re.findall(r"Overfull \\hbox \(([\d.]+)pt too wide\)", done.stdout)
    return [points for points in map(float, found) if points > 10]


_PHONE = """<iframe style="width: {width}px; height: 800px; border: 0" srcdoc="{page}"></iframe>
<pre id="ends"></pre><script>addEventListener("load", () => {{
  const tables = document.querySelector("iframe").contentDocument.querySelectorAll(".numbers");
  document.getElementById("ends").textContent = JSON.stringify([...tables].map((table) => [
    table.rows[0].cells[1].textContent,
    ...[...table.rows].map((row) => Math.round(row.cells[1].getBoundingClientRect().right)),
  ]));
}});</script>"""


def second_columns(page: Path, folder: Path, width: int) -> dict[str, int]:
    """Header of the second column of each table of numbers, and its right end in pixels on a screen
    of this width."""
    chromium = os.environ.get("CHROMIUM", "/usr/bin/chromium")
    if not os.path.exists(chromium):
        absent("looking at reports needs Chromium: make browser")
    wrapper = folder / "phone.html"
    report = re.sub(r"<meta http-equiv[^>]*>", "", page.read_text("utf-8"))
    wrapper.write_text(_PHONE.format(width=width, page=html.escape(report)), "utf-8")
    command = [chromium, "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom",
               f"--user-data-dir={folder / 'chromium'}", wrapper.resolve().as_uri()]  # fmt: skip
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
    ends = json.loads(html.unescape(done.stdout.split('<pre id="ends">')[1].split("</pre>")[0]))
    return {str(name): max(places) for name, *places in ends}


def printed(page: Path, folder: Path) -> str:
    """The words of a page as Chromium prints it, with single blanks."""
    chromium = os.environ.get("CHROMIUM", "/usr/bin/chromium")
    if not os.path.exists(chromium) or shutil.which("pdftotext") is None:
        absent("printing reports needs Chromium and pdftotext: make browser paper")
    out = folder / "page.pdf"
    command = [chromium, "--headless", "--no-sandbox", "--disable-gpu", "--no-pdf-header-footer",
               f"--user-data-dir={folder / 'chromium'}", f"--print-to-pdf={out}",
               page.resolve().as_uri()]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    text = subprocess.run(
        ["pdftotext", "-layout", str(out), "-"], check=True, capture_output=True, text=True
    ).stdout
    return " ".join(text.split())
