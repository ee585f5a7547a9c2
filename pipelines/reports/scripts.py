"""The script of a page, and what the page may load: nothing but what is in it."""

import hashlib
from base64 import b64encode
from pathlib import Path

SCRIPT = "".join(
    (Path(__file__).parent / name).read_text("utf-8") for name in ("curves.js", "report.js")
)
_DIGEST = b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
POLICY = (
    f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'sha256-{_DIGEST}'"
)
