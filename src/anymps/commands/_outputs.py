"""The options that name reports: their forms and files."""

from __future__ import annotations

__all__ = ["STDOUT", "Output", "Outputs", "report_option", "root_option", "write_file", "write_stream"]

import os
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from anymps.report import FORMATS, STDOUT, Output, Outputs, write_file, write_stream

_F = TypeVar("_F", bound=Callable[..., Any])


def report_option(function: _F) -> _F:
    """`--report FORM=FILE`, as often as wanted; gives the parameter `reports`."""
    return click.option(
        "--report",
        "reports",
        metavar="FORM=FILE",
        multiple=True,
        callback=_parse,
        help=f"Write a report of this form ({', '.join(FORMATS)}) to this file, - for standard output. "
        "May be given more than once.",
    )(function)


def root_option(function: _F) -> _F:
    """`--root DIRECTORY`; gives the parameter `root`."""
    return click.option(
        "--root",
        metavar="DIRECTORY",
        callback=lambda context, option, value: None if value is None else os.path.realpath(value),
        help="Make paths in sarif and github relative to this directory, such as the checkout. Default: the run's.",
    )(function)


def _parse(context: click.Context, option: click.Parameter, values: Sequence[str]) -> tuple[Output, ...]:
    try:
        return tuple(Output.parse(value) for value in values)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
