"""`--torch RELEASE`: times are predicted for another release of torch than the one that is installed."""

from __future__ import annotations

__all__ = ["torch_option"]

import click

from anymps._errors import CostError, UsageError


def _release(_: click.Context, __: click.Parameter, text: str | None) -> str:
    """The release, empty for none. Raises UsageError, in one line, for a text that is none."""
    from anymps.cost import check_release

    try:
        return check_release(text) if text else ""
    except CostError as error:
        raise UsageError(f"--torch: {str(error).removeprefix('anymps: ')}") from None


torch_option = click.option(
    "--torch",
    "torch_release",
    metavar="RELEASE",
    callback=_release,
    help="Predict times for this release, such as 2.11; the calls are those that the installed one makes.",
)
