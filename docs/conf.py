"""The site: `make docs` builds it from these pages with Sphinx, and stops at the first warning."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

_VERSION = Path(__file__).parents[1] / "src" / "anymps" / "_version.py"

project = "anymps"
author = "anymps"
repository = ""
"""`owner/name` on GitHub, held here alone. While it is empty, the pages' workflows take it from a variable."""
release = re.findall(r'__version__ = "(.+)"', _VERSION.read_text(encoding="utf-8"))[0]

extensions = ["myst_parser", "sphinx.ext.autodoc"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["schema"]
nitpicky = True
nitpick_ignore_regex = [(r"py:.*", r".*")]  # types in signatures: only a handful of names have a place on the site

myst_heading_anchors = 3
highlight_language = "text"  # of blocks that name no language
default_role = "code"  # docstrings mark code with single backticks
autodoc_member_order = "bysource"
autodoc_default_options = {"exclude-members": "__init__, __new__"}  # objects that users get, and do not make
autodoc_typehints = "signature"

html_theme = "furo"
html_title = "anymps"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = ["tables.js"]
html_copy_source = False
html_show_sourcelink = False
html_show_copyright = False
html_use_index = False
if repository:
    html_theme_options = {
        "source_repository": f"https://github.com/{repository}/",
        "source_branch": "main",
        "source_directory": "docs/",
    }


def _put_the_address(app: Any, document: str, source: list[str]) -> None:
    # In place of the variable, and of the sentences that explain it.
    if repository:
        rest = re.sub(r"<!-- unknown address -->\n.*?<!-- /unknown address -->\n", "", source[0], flags=re.DOTALL)
        source[0] = rest.replace("${{ vars.ANYMPS }}", repository)


def _put_pages_into_the_tree(app: Any, document: str, source: list[str]) -> None:
    # The index of recipes is for reading in the repository too; only the site needs a tree. The rules have a filter,
    # and docs/evidence.md names what runs have written.
    pages = {"architecture": "architecture/*", "commands": "commands/*"}.get(document)
    if document.startswith(("rules/MPS", "fidelity")):
        source[0] = f"---\norphan: true\n---\n\n{source[0]}"
    if document == "recipes/README":  # in the order of its table, not of the alphabet
        pages = "\n".join(re.findall(r"^\| \[.+?\]\((\w+)\.md\)", source[0], re.MULTILINE))
    if pages is not None:
        source[0] += f"\n```{{toctree}}\n:hidden:\n:glob:\n\n{pages}\n```\n"


def _leave_out_what_says_nothing(app: Any, what: str, name: str, value: Any, skip: bool, options: Any) -> bool | None:
    # Fields of named tuples, which the signature shows already.
    return True if str(getattr(value, "__doc__", "")).startswith("Alias for field number") else None


def setup(app: Any) -> None:
    """Called by Sphinx."""
    app.connect("autodoc-skip-member", _leave_out_what_says_nothing)
    app.connect("source-read", _put_the_address)
    app.connect("source-read", _put_pages_into_the_tree)
