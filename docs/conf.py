"""The site: `make docs`. Every warning is an error, and no page loads anything from elsewhere."""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "docs" / "extensions"), str(ROOT / "docs" / "gallery"), str(ROOT)]
# Cells run in processes of their own, which find this checkout and the command beside its Python.
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
os.environ["DOCS"] = str(ROOT / "docs")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["PYDEVD_DISABLE_FILE_VALIDATION"] = "1"

from pdegen import __version__  # noqa: E402 (of this checkout)

project = "pdegen"
author = "the authors of pdegen"
copyright = "the authors of pdegen, MIT licence"
version = release = __version__
extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_design",
    "cells",
    "docstrings",
    "links",
    "mathematics",
    "numerals",
    "pages",
    "tables",
]
exclude_patterns = ["extensions", "_build"]
nitpicky = False
# where no kernel runs, none names its language: extensions/cells.py does
suppress_warnings = ["mystnb.lexer", "myst-nb.lexer"]

# Tutorials: executed with --define cells=cache, and shown without their outputs otherwise.
nb_execution_mode = "off"
nb_execution_cache_path = str(ROOT / "build" / "docs-cells")
nb_execution_in_temp = True
nb_execution_show_tb = True
nb_execution_timeout = 600
nb_output_stderr = "remove"
nb_merge_streams = True
nb_ipywidgets_js = {}

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath", "attrs_inline"]
myst_heading_anchors = 4
myst_dmath_double_inline = True
html_math_renderer = "mathml"

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 88
napoleon_google_docstring = True
napoleon_numpy_docstring = False
default_role = "code"

html_theme = "pydata_sphinx_theme"
html_title = "pdegen"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_js_files = ["site.js"]
html_show_sourcelink = False
html_copy_source = False
html_sidebars = {"index": [], "ten-tasks": []}
html_theme_options = {
    "logo": {"text": "pdegen"},
    "navigation_with_keys": False,
    "show_nav_level": 1,
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
    "footer_start": ["copyright"],
    "footer_end": [],
    "secondary_sidebar_items": ["page-toc"],
}
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
