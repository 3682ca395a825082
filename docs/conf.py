"""How Sphinx builds the site: `make docs`. Nothing is fetched, neither by the build nor by a page."""

from __future__ import annotations

import sys
from pathlib import Path

import fedtempo

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))  # for the extension that is only ours

project = "FedTempo"
project_copyright = "the FedTempo contributors"
version = release = fedtempo.__version__
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_design",
    "site_extension",
]
exclude_patterns = ["_build"]
suppress_warnings = ["myst.strikethrough"]
smartquotes = False  # options start with two dashes

myst_enable_extensions = ["attrs_block", "attrs_inline", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 4
myst_dmath_double_inline = True

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 70
napoleon_numpy_docstring = False
toc_object_entries_show_parents = "hide"

html_theme = "furo"
html_title = "FedTempo"
html_static_path = ["assets"]
html_css_files = ["site.css"]
html_favicon = "assets/logo.svg"
html_math_renderer = "mathml"
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#00695c", "color-brand-content": "#00695c"},
    "dark_css_variables": {"color-brand-primary": "#4db6ac", "color-brand-content": "#4db6ac"},
    "light_logo": "logo.svg",
    "dark_logo": "logo.svg",
}
copybutton_exclude = ".linenos, .gp, .go"
copybutton_prompt_text = r"\$ |>>> |\.\.\. "
copybutton_prompt_is_regexp = True
