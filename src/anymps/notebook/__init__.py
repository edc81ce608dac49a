"""Notebooks: the cell magic `%%mps`, recordings that show themselves, and a notebook run from beginning to end."""

from __future__ import annotations

from anymps.notebook._cells import begin, finish
from anymps.notebook._execute import execute, read
from anymps.notebook._magic import html, load_ipython_extension
