"""The settings of each command, and of `pytest --mps`: one class each, whose fields are rows.

Classes of faces that use the device inherit what is shared (`_settings`).
"""

from __future__ import annotations

# ruff: noqa: RUF009 - `row` makes a new field at each call
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final, Literal

from anymps._setting_row import Row, row
from anymps._settings import DOCUMENT_FORMATS, FORMATS, READ_FORMATS, Settings, rows

_LOOK_AT: Final = "Look only at the first N training steps"  # what `--steps 8` means to all commands
_END_THERE: Final = f"{_LOOK_AT}, or rounds of an inference loop, and end each"


@dataclass(frozen=True)
class RunSettings(Settings):
    """Of `anymps run`."""

    record: Path | None = row("file", help="Keep the recording in this file.")
    source: str | None = row(
        "word", help="How operators are recorded: by the virtual device, or by an observer, as on a real Mac. Default: "
        "the best one that the device supports.", words=("native", "observer"),
    )  # fmt: skip
    children: bool = row(
        "flag", True, "Give no device to processes that the script starts, and do not record them.",
        option="no-children",
    )  # fmt: skip
    steps: tuple[int, int] | None = row(
        "range", help=f"{_LOOK_AT}; 10:30 means those after the 10th, up to the 30th. The script runs to its end.",
        metavar="N|FIRST:LAST",
    )  # fmt: skip
    live: bool = row("flag", False, "Show steps, waits and memory while the script runs.")
    verbose: bool = row("flag", False, "Show the full report at the end, not the short one.", short="-v")
    arguments: bool = row(
        "flag", True, "Leave the script's arguments out of the recording and the reports.", option="no-arguments"
    )
    report: bool = row("flag", True, "Show no report at the end.", option="no-report")


@dataclass(frozen=True)
class ReportSettings(Settings):
    """Of `anymps report`."""

    form: str = row(
        "word", "terminal", "The format of the report.", option="format",
        words=FORMATS,
    )  # fmt: skip
    output: str = row("text", "-", "Write it to this file; - (default) is standard output.", metavar="PATH")
    verbose: bool = row("flag", False, "Show each finding in full, and this machine's own times.", short="-v")
    gpu_log: Path | None = row(
        "file", help="Show GPU time by line: a log of the recorded run on a Mac, with PYTORCH_MPS_LOG_PROFILE_INFO=16.",
    )  # fmt: skip


@dataclass(frozen=True)
class BenchSettings(Settings):
    """Of `anymps bench`."""

    devices: str | None = row(
        "text", help="For a function: the device, mps (the default), or cpu,mps to compare. A script chooses its own "
        "device.",
        option="device", metavar="DEVICES",
    )  # fmt: skip
    warmup: int = row("integer", 3, "Warm-up calls or steps, which are not timed.", least=1, shows_default=True)
    repeat: int = row("integer", 20, "Timed runs or steps.", least=1, shows_default=True)
    min_time: float = row(
        "number", 0.5, "For a function: repeat until the runs took this many seconds.", least=0, shows_default=True
    )
    calls: int = row("integer", 1, "For a function: calls in one run.", least=1, shows_default=True)
    predict: bool = row(
        "switch",
        True,
        "Record a few more steps or calls on mps, and show their predicted time beside the measured one.",
    )
    json: bool = row("flag", False, "Print everything as JSON; times in nanoseconds.")


@dataclass(frozen=True)
class PlanSettings(Settings):
    """Of `anymps plan`."""

    formats: ClassVar[tuple[str, ...]] = DOCUMENT_FORMATS

    macs: tuple[str, ...] = row(
        "texts", (), 'Plan for this Mac, such as "M3 Pro 18GB"; repeatable. Default: each chip.',
        option="mac", metavar="MAC",
    )  # fmt: skip
    against: str | None = row(
        "text", help='Show how many times as fast as your own Mac ("M1 16GB") the others are, with an interval.',
        metavar="MAC",
    )  # fmt: skip
    other_memory: str | None = row(
        "text", help="What other programs take of each Mac's memory (6GB); beyond what is left, macOS pages.",
        metavar="SIZE",
    )  # fmt: skip
    what_if: tuple[str, ...] = row(
        "texts", (), "Try a change without editing the script: batch=8, sequence=512, accumulate=4, bf16, fp16, nf4, "
        "int8, checkpoint, fused, unfused, sgd, adam, adamw; several at once with commas; repeatable.",
        metavar="CHANGES",
    )  # fmt: skip
    larger: bool = row("switch", True, "Also measure twice the batch, which gives the largest one that fits.")
    batch: int | None = row("integer", help="The batch size, also for {batch} in the script's arguments.", least=1)
    sequence: int | None = row("integer", help="The sequence length, also for {sequence} in the arguments.", least=1)
    steps: int = row("steps", 3, f"{_END_THERE} measurement there.", metavar="N", most=1000, shows_default=True)
    seconds: float = row("number", 300, "Time limit of one measurement, in seconds.", least=1, shows_default=True)
    allow_writes: bool = row(
        "flag", False, "Let the script write its files; otherwise they are discarded after the plan."
    )
    verbose: bool = row("flag", False, "Show the full plan, not only which Macs it fits on.", short="-v")


@dataclass(frozen=True)
class CompareSettings(Settings):
    """Of `anymps compare`."""

    formats: ClassVar[tuple[str, ...]] = DOCUMENT_FORMATS

    of: str = row(
        "word", "cpu", "The device of the first run; a release such as 2.13 is mps with the kernels of that release "
        "(anymps kernels add).", words=("cpu", "mps", "cuda"), other="release", shows_default=True,
    )  # fmt: skip
    other: str = row(
        "word", "mps", "The device of the second run, likewise.", option="with", words=("cpu", "mps", "cuda"),
        other="release", shows_default=True,
    )  # fmt: skip
    random: str = row(
        "word", "own", "Draw random numbers on each device (own), or on the CPU in both runs (cpu), to see what else "
        "differs.", words=("own", "cpu"), shows_default=True,
    )  # fmt: skip
    steps: int | None = row("steps", help=f"{_END_THERE} run there.  [default: all]", metavar="N")
    full_steps: int = row(
        "integer", 10, "Compare every call of this many training steps, and of later steps at doubling intervals; "
        "losses of all steps.", least=1, shows_default=True,
    )  # fmt: skip
    seconds: float = row("number", 600, "Time limit of each run, in seconds.", least=1, shows_default=True)


@dataclass(frozen=True)
class FixSettings(Settings):
    """Of `anymps fix`."""

    write: bool = row("flag", False, "Apply the patch.")
    force: bool = row("flag", False, "With --write: change files even if their current state is not committed to git.")
    seconds: float = row("number", 600, "Time limit of one run, in seconds.", least=1, shows_default=True)
    steps: int | None = row("steps", help=f"{_END_THERE} run there.  [default: all]", metavar="N")


@dataclass(frozen=True)
class DiffSettings:
    """Of `anymps diff`."""

    form: str = row(
        "word", "terminal", "The format of the comparison.", option="format",
        words=READ_FORMATS,
    )  # fmt: skip
    output: str = row("text", "-", "Write it to this file; - (default) is standard output.", metavar="PATH")
    worse: str = row(
        "word", "warning", "Exit with 1 if there are new findings of this severity or higher.", option="fail-on",
        words=("error", "warning", "info", "never"), shows_default=True,
    )  # fmt: skip


@dataclass(frozen=True)
class UpgradeSettings(Settings):
    """Of `anymps upgrade`."""

    formats: ClassVar[tuple[str, ...]] = DOCUMENT_FORMATS

    first: str | None = row(
        "text", help="Show only the step from this release of torch. Default with --to: that of the run.",
        option="from", metavar="RELEASE",
    )  # fmt: skip
    last: str | None = row(
        "text", help="Show only the step to this release. Default with --from: the newest.", option="to",
        metavar="RELEASE",
    )  # fmt: skip
    least: str = row(
        "word", "never", "Exit with 1 if the release of --to (default: the newest) does this, or worse, with a line of "
        "the script on the Mac's macOS. From bad to less bad: refused, wrong, may-fail, falls-back, slower.",
        option="fail-on", words=("refused", "wrong", "may-fail", "falls-back", "slower", "never"), shows_default=True,
    )  # fmt: skip


@dataclass(frozen=True)
class CoverageSettings:
    """Of `anymps coverage`."""

    release: str | None = row(
        "text", help="Ask about this release instead of the installed one.", option="torch", metavar="RELEASE"
    )


@dataclass(frozen=True)
class ConvertSettings:
    """Of `anymps convert`."""

    to: Literal["safetensors"] | None = row("word", help="Write torch files in this format.", words=("safetensors",))
    force: bool = row("flag", False, "Overwrite OUT if it exists.")


@dataclass(frozen=True)
class KernelsAddSettings:
    """Of `anymps kernels add`."""

    download: bool = row("flag", False, "Let pip download the wheel.")
    release: str | None = row(
        "text", help="Add the kernels of this release, such as 2.15, instead of the installed one.", option="torch",
        metavar="RELEASE",
    )  # fmt: skip


@dataclass(frozen=True)
class KernelsListSettings:
    """Of `anymps kernels list`."""

    release: str | None = row(
        "text", help="Use the kernels of this release, not of the installed one.", option="torch",
        metavar="RELEASE",
    )  # fmt: skip


@dataclass(frozen=True)
class PytestSettings(Settings):
    """Of `pytest --mps`; `reports_from` is the folder that the files of `reports` are named from."""

    fail_on_fallback: bool = row("flag", False, pytest="fail a test if an operator runs on the CPU without a mark")
    default_device: bool = row("flag", False, pytest="call torch.set_default_device('mps') around each test")
    manifest: Path | None = row("file", pytest="the tests that are expected to fail, and how; all others must pass")
    update_manifest: bool = row("flag", False, pytest="update the manifest from the results of this run")
    rerun: bool = row(
        "flag", True, pytest="in an update, rerun failing tests without mps, and leave out those that fail there too"
    )
    update_baseline: bool = row("flag", False, pytest="update the baseline from this run")
    recording: Path | None = row("file", pytest="keep the recording of the session (anymps report FILE)")
    reports_from: Path = Path()


FACES: Final[Mapping[str, type[Any]]] = {
    "run": RunSettings,
    "report": ReportSettings,
    "bench": BenchSettings,
    "compare": CompareSettings,
    "plan": PlanSettings,
    "fix": FixSettings,
    "diff": DiffSettings,
    "upgrade": UpgradeSettings,
    "coverage": CoverageSettings,
    "convert": ConvertSettings,
    "kernels add": KernelsAddSettings,
    "kernels list": KernelsListSettings,
    "pytest": PytestSettings,
}
"""The commands, and pytest, with the class of what each takes; commands without the device share nothing."""


def rows_of(face: str) -> tuple[Row, ...]:
    """The rows that a command, or `pytest`, takes: of those that are shared what names it, and all its own."""
    shared = {row.name for row in rows()}
    return tuple(
        row
        for row in rows(FACES[face])
        if row.name not in shared or (row.pytest if face == "pytest" else face in row.commands)
    )
