"""The script of a page, and what the page may load: nothing but what is in it."""

import hashlib
from base64 import b64encode
from pathlib import Path

SCRIPT = (Path(__file__).parent / "report.js").read_text("utf-8")
_DIGEST = b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
POLICY = (
    f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'sha256-{_DIGEST}'"
)
