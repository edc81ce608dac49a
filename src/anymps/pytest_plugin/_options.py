"""The options of `pytest --mps`, each with its twin in the configuration file, and the marks. Loads nothing else."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest

MARKERS = (
    "mps_fails(raises, match=None): under --mps the test must fail with this exception, or one of a tuple; `match` is "
    "a regular expression for its text",
    "mps_skip(reason): not run under --mps",
    "mps_fallback(*operators): operators that may run on the CPU in this test, such as aten::take, "
    "under --mps-fail-on-fallback",
    "mps_limit_waits(n): the test fails under --mps if the host waits for the GPU more often; copies to the device and "
    "the reads of torch.testing do not count",
    'mps_limit_memory(limit): the test fails under --mps if it adds more to the device\'s memory, such as "100 MiB"',
)


@dataclass(frozen=True)
class Settings:
    """What the command line and the configuration file ask for; `reports` are as they were written there."""

    mac: str | None
    require: str | None
    fallback: bool | None
    fail_on_fallback: bool
    check_shaders: bool
    manifest: Path | None
    update_manifest: bool
    rerun: bool
    default_device: bool
    cuda_as_mps: bool | None
    kernels: str | None
    allow_unused: bool
    recording: Path | None
    baseline: Path | None
    update_baseline: bool
    reports: tuple[str, ...]
    reports_from: Path


@dataclass(frozen=True)
class Option:
    """One option: `name` with underscores is its twin in the configuration file, with hyphens the command line's."""

    name: str
    kind: Literal["flag", "text", "file", "reports"]
    help: str
    metavar: str | None = None

    @property
    def flag(self) -> str:
        """As the command line has it."""
        return "--" + self.name.replace("_", "-")


OPTIONS = (
    Option("mps", "flag", "run the tests with an mps device: the Mac's own, else a virtual one"),
    Option("mps_mac", "text", "which Mac the virtual device is, such as 'M3 Pro 18GB'", "NAME"),
    Option("mps_require", "text", "end unless the device is of this kind: real (a Mac's own) or virtual", "KIND"),
    Option("mps_fallback", "flag", "PYTORCH_ENABLE_MPS_FALLBACK, on or off"),
    Option("mps_fail_on_fallback", "flag", "a test fails if an operator runs on the CPU unmarked"),
    Option("mps_check_shaders", "flag", "a test fails if a Metal kernel has a race, or touches what is not its own"),
    Option("mps_default_device", "flag", "torch.set_default_device('mps') around each test"),
    Option("mps_cuda_as_mps", "flag", "mps answers for CUDA: torch.cuda, .cuda() and 'cuda'"),
    Option("mps_kernels", "text", "real: PyTorch's own kernels compute what their launches are known for", "WHICH"),
    Option("mps_allow_unused", "flag", "a session in which nothing ran on mps may pass"),
    Option("mps_manifest", "file", "the tests that are expected to fail, and how; all others must pass", "FILE"),
    Option("mps_update_manifest", "flag", "write how the tests of this run end to the manifest"),
    Option("mps_rerun", "flag", "an update runs failing tests again without mps, and leaves out what fails there, too"),
    Option("mps_baseline", "file", "the lines that are known to wait or to run on the CPU: no others may", "FILE"),
    Option("mps_update_baseline", "flag", "write the lines of this run to the baseline"),
    Option(
        "mps_report",
        "reports",
        "write a report of the session, such as html=mps.html (forms as in anymps report); may be given several times",
        "FORM=FILE",
    ),
    Option("mps_recording", "file", "keep the recording of the session (anymps report FILE)", "FILE"),
)
"""All of them. A switch has its opposite on the command line, `--no-mps` and so on."""


def add_options(parser: pytest.Parser) -> None:
    """Declare them. On the command line the default is None: only then does the configuration file speak."""
    group = parser.getgroup("mps", "mps device (anymps)")
    for it in OPTIONS:
        words: dict[str, Any] = {"dest": it.name, "default": None, "help": it.help}
        if it.kind == "flag":
            group.addoption(it.flag, action=argparse.BooleanOptionalAction, **words)
            parser.addini(it.name, it.help, type="bool", default=None)
        elif it.kind == "reports":
            group.addoption(it.flag, action="append", metavar=it.metavar, **words)
            parser.addini(it.name, f"{it.help} (one a line)", type="linelist", default=[])
        else:
            group.addoption(it.flag, metavar=it.metavar, **words)
            parser.addini(it.name, it.help, default="")


def wanted(config: pytest.Config, options: argparse.Namespace) -> bool:
    """Whether `--mps` is on."""
    return _flag(config, options, "mps") is True


def check_unused(options: argparse.Namespace) -> None:
    """Raise UsageError for an option that has no effect without `--mps`, unless that was taken back by `--no-mps`."""
    if getattr(options, "mps", None) is False:
        return
    for it in OPTIONS:
        if getattr(options, it.name, None) is not None:
            raise pytest.UsageError(f"{it.flag} needs --mps")


def read_settings(config: pytest.Config, options: argparse.Namespace) -> Settings:
    """All of them. Raises UsageError for values that make no sense."""
    require = _text(config, options, "mps_require")
    if require not in (None, "real", "virtual"):
        raise pytest.UsageError(f"--mps-require (ini: mps_require) must be real or virtual, not {require!r}")
    manifest = _path(config, options, "mps_manifest")
    update_manifest = _flag(config, options, "mps_update_manifest") is True
    if update_manifest and manifest is None:
        raise pytest.UsageError("--mps-update-manifest needs --mps-manifest FILE (ini: mps_manifest)")
    baseline = _path(config, options, "mps_baseline")
    update_baseline = _flag(config, options, "mps_update_baseline") is True
    if update_baseline and baseline is None:
        raise pytest.UsageError("--mps-update-baseline needs --mps-baseline FILE (ini: mps_baseline)")
    reports = options.mps_report if options.mps_report is not None else config.getini("mps_report")
    return Settings(
        mac=_text(config, options, "mps_mac"),
        require=require,
        fallback=_flag(config, options, "mps_fallback"),
        fail_on_fallback=_flag(config, options, "mps_fail_on_fallback") is True,
        manifest=manifest,
        update_manifest=update_manifest,
        rerun=_flag(config, options, "mps_rerun") is not False,
        check_shaders=_flag(config, options, "mps_check_shaders") is True,
        default_device=_flag(config, options, "mps_default_device") is True,
        cuda_as_mps=_flag(config, options, "mps_cuda_as_mps"),
        kernels=_text(config, options, "mps_kernels"),
        allow_unused=_flag(config, options, "mps_allow_unused") is True,
        recording=_path(config, options, "mps_recording"),
        baseline=baseline,
        update_baseline=update_baseline,
        reports=tuple(text for text in reports if text),
        reports_from=_directory(config, options, "mps_report"),
    )


def runs_tests(options: argparse.Namespace) -> bool:
    """Whether tests are called: not with `--collect-only`, `--fixtures`, `--setup-plan` and their like."""
    others = ("collectonly", "showfixtures", "show_fixtures_per_test", "setuponly", "setupplan")
    return not any(getattr(options, name, False) for name in others)


def _flag(config: pytest.Config, options: argparse.Namespace, name: str) -> bool | None:
    value = getattr(options, name, None)
    if isinstance(value, bool):
        return value
    try:
        answer = config.getini(name)
    except (ValueError, TypeError, pytest.UsageError):
        raise pytest.UsageError(f"{name} in the configuration file must be true or false") from None
    return answer if isinstance(answer, bool) else None


def _text(config: pytest.Config, options: argparse.Namespace, name: str) -> str | None:
    value = getattr(options, name, None)
    return str(value if value is not None else config.getini(name)).strip() or None


def _path(config: pytest.Config, options: argparse.Namespace, name: str) -> Path | None:
    text = _text(config, options, name)
    if text is None:
        return None
    path = _directory(config, options, name) / text
    _check_root(config, name, text, path)
    return path


def _check_root(config: pytest.Config, name: str, text: str, path: Path) -> None:
    """Raise UsageError if this word of the command line has moved pytest's root directory, and with it all test ids.

    pytest looks for its root before it knows the options of plugins: an existing file behind `--option FILE` counts as
    one of the tests then (`get_dirs_from_args` in _pytest/config/findpaths.py), one behind `--option=FILE` does not.
    """
    root, start = config.rootpath, config.invocation_params.dir
    if config.inipath is not None or config.option.rootdir is not None or (root / "setup.py").is_file():
        return
    within = path.resolve().parents
    if root in start.parents and root in within and start not in within and text in config.invocation_params.args:
        flag = "--" + name.replace("_", "-")
        if path.exists():
            raise pytest.UsageError(
                f"{flag} {text} lies outside of the suite, and moves pytest's root directory, by which tests are "
                f"named, to {root}: write {flag}={text}"
            )


def _directory(config: pytest.Config, options: argparse.Namespace, name: str) -> Path:
    """A path of the command line lies where pytest was started, one of the configuration file beside that file."""
    if getattr(options, name, None) is not None or config.inipath is None:
        return config.invocation_params.dir
    return config.inipath.parent
