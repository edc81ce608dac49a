"""Settings of the commands that run no script: each has its own, and shares none with the device."""

from __future__ import annotations

# ruff: noqa: RUF009 - `row` makes a field anew at each call

__all__ = [
    "ConvertSettings",
    "CoverageSettings",
    "DiffSettings",
    "DoctorSettings",
    "JoinManifestsSettings",
    "JoinSettings",
    "KernelsAddSettings",
    "KernelsListSettings",
    "KernelsRemoveSettings",
    "KernelsShowSettings",
]

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from anymps._settings._row import row


@dataclass(frozen=True)
class DiffSettings:
    """Of `anymps diff`."""

    form: str = row(
        "word", "terminal", "The format of the comparison.", option="format",
        words=("terminal", "html", "markdown", "json"),
    )  # fmt: skip
    output: str = row("text", "-", "Write it to this file; - (default) is standard output.", metavar="PATH")
    worse: str = row(
        "word", "warning", "Exit with 1 if there are new findings of this severity or higher.", option="fail-on",
        words=("error", "warning", "info", "never"), shows_default=True,
    )  # fmt: skip


@dataclass(frozen=True)
class JoinSettings:
    """Of `anymps join`."""

    output: Path = row("file", help="The combined recording to write.", short="-o", required=True)


@dataclass(frozen=True)
class JoinManifestsSettings:
    """Of `anymps join-manifests`."""

    into: Path = row("file", help="The manifest that the shards started from; it is updated in place.", required=True)


@dataclass(frozen=True)
class DoctorSettings:
    """Of `anymps doctor`."""

    json: bool = row("flag", False, "Print facts and diagnosis as JSON.")
    python: Path | None = row("file", help="Diagnose another Python interpreter and its torch.", metavar="PATH")


@dataclass(frozen=True)
class CoverageSettings:
    """Of `anymps coverage`."""

    release: str | None = row(
        "text", help="Ask about this release instead of the installed one.", option="torch", metavar="RELEASE"
    )
    json: bool = row("flag", False, "Print the answer as JSON.")


@dataclass(frozen=True)
class ConvertSettings:
    """Of `anymps convert`."""

    to: Literal["safetensors"] | None = row("word", help="Write torch files in this format.", words=("safetensors",))
    force: bool = row("flag", False, "Overwrite OUT if it exists.")
    dry_run: bool = row("flag", False, "Read and convert everything, write nothing; OUT may be left out.")
    json: bool = row("flag", False, "Print what was changed as JSON.")


@dataclass(frozen=True)
class KernelsAddSettings:
    """Of `anymps kernels add`."""

    download: bool = row("flag", False, "Have pip download the wheel of the installed release.")


@dataclass(frozen=True)
class KernelsRemoveSettings:
    """Of `anymps kernels remove`, and of those that read the kernels."""

    release: str | None = row(
        "text", help="The release whose kernels are meant, instead of the installed one.", option="torch",
        metavar="RELEASE",
    )  # fmt: skip


@dataclass(frozen=True)
class KernelsListSettings(KernelsRemoveSettings):
    """Of `anymps kernels list`."""

    json: bool = row("flag", False, "Print the names as JSON.")


@dataclass(frozen=True)
class KernelsShowSettings(KernelsRemoveSettings):
    """Of `anymps kernels show`."""

    json: bool = row("flag", False, "Print the answer as JSON.")
    markdown: bool = row("flag", False, "Print the answer as Markdown.")
