"""Writing a plan: on the terminal, or to a file whose ending says how."""

from __future__ import annotations

__all__ = ["write_plan"]

import sys
from io import StringIO
from pathlib import Path

from anymps._atomic import replace_text
from anymps._errors import UsageError
from anymps.plan import Plan
from anymps.report import plan_json, plan_page, print_plan


def write_plan(plan: Plan, path: Path | None, *, verbose: bool = False) -> None:
    """Show the plan on stdout, short unless `verbose`, or write all of it to `path`.

    Raises UsageError if the file cannot be written.
    """
    if path is None:
        print_plan(plan, sys.stdout, verbose=verbose)
        return
    if path.suffix == ".json":
        text = plan_json(plan)
    elif path.suffix in (".html", ".htm"):
        text = plan_page(plan)
    else:
        print_plan(plan, shown := StringIO(), verbose=True)
        text = shown.getvalue()
    try:
        replace_text(path, text)
    except OSError as error:
        raise UsageError(f"the plan cannot be written to {path}: {error.strerror or error}") from error
