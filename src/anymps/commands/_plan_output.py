"""Writing a plan: on the terminal, or to a file whose ending says how."""

from __future__ import annotations

__all__ = ["write_plan"]

import sys
from pathlib import Path
from typing import Final

from anymps._atomic import replace_text
from anymps._errors import UsageError
from anymps.plan import Plan
from anymps.report import plan_document, plan_json, print_document, rendered

_FORMS: Final = {".html": "html", ".htm": "html", ".md": "markdown"}  # by a file's ending; else text


def write_plan(plan: Plan, path: Path | None, *, verbose: bool = False) -> None:
    """Show the plan on stdout, short unless `verbose`, or write all of it to `path`.

    Raises UsageError if the file cannot be written.
    """
    if path is None:
        print_document(plan_document(plan, short=not verbose), sys.stdout)
        return
    form = _FORMS.get(path.suffix, "terminal")
    pieces = [plan_json(plan)] if path.suffix == ".json" else rendered(plan_document(plan), form)
    try:
        replace_text(path, pieces)
    except OSError as error:
        raise UsageError(f"the plan cannot be written to {path}: {error.strerror or error}") from error
