"""The options of `pytest --mps`, each with its twin in the configuration file, and the marks. Loads nothing else."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

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
    """What the command line and the configuration file ask for."""

    mac: str | None
    require: str | None
    fallback: bool | None
    fail_on_fallback: bool
    manifest: Path | None
    update_manifest: bool
    default_device: bool
    recording: Path | None
    baseline: Path | None
    update_baseline: bool
    reports: tuple[str, ...]


def add_options(parser: pytest.Parser) -> None:
    """Declare them. A flag's default is None: only then does the configuration file speak."""
    group = parser.getgroup("mps", "mps device (anymps)")
    flags = (
        ("--mps", "mps", "run the tests with an mps device: the Mac's own, else a virtual one"),
        ("--mps-fail-on-fallback", "mps_fail_on_fallback", "a test fails if an operator runs on the CPU unmarked"),
        ("--mps-default-device", "mps_default_device", "torch.set_default_device('mps') around each test"),
    )
    for flag, ini, text in flags:
        group.addoption(flag, dest=ini, action="store_true", default=None, help=text)
        parser.addini(ini, text, type="bool", default=None)
    group.addoption(
        "--mps-fallback",
        dest="mps_fallback",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="PYTORCH_ENABLE_MPS_FALLBACK, on or off",
    )
    parser.addini("mps_fallback", "PYTORCH_ENABLE_MPS_FALLBACK, true or false", type="bool", default=None)
    texts = (
        ("--mps-mac", "mps_mac", "NAME", "which Mac the virtual device is, such as 'M3 Pro 18GB'"),
        (
            "--mps-manifest",
            "mps_manifest",
            "FILE",
            "the tests that are expected to fail, and how; all others must pass",
        ),
        (
            "--mps-baseline",
            "mps_baseline",
            "FILE",
            "the lines that are known to wait or to run on the CPU: no others may",
        ),
        ("--mps-recording", "mps_recording", "FILE", "keep the recording of the session (anymps report FILE)"),
    )
    for flag, ini, metavar, text in texts:
        group.addoption(flag, dest=ini, metavar=metavar, default=None, help=text)
        parser.addini(ini, text, default="")
    text = "end unless the device is a Mac's own, or the virtual one"
    group.addoption("--mps-require", dest="mps_require", choices=("real", "virtual"), default=None, help=text)
    parser.addini("mps_require", text, default="")
    text = (
        "write a report of the session, such as html=mps.html (forms as in anymps report); may be given several times"
    )
    group.addoption("--mps-report", dest="mps_report", metavar="FORM=FILE", action="append", default=None, help=text)
    group.addoption(
        "--mps-update-baseline",
        dest="mps_update_baseline",
        action="store_true",
        default=None,
        help="write the lines of this run to the baseline (command line only)",
    )
    group.addoption(
        "--mps-update-manifest",
        dest="mps_update_manifest",
        action="store_true",
        default=None,
        help="write how the tests of this run end to the manifest (command line only)",
    )


def wanted(config: pytest.Config, options: argparse.Namespace) -> bool:
    """Whether `--mps` is on."""
    return _flag(config, options, "mps") is True


def check_unused(options: argparse.Namespace) -> None:
    """Raise UsageError for an option that has no effect without `--mps`."""
    for name, value in sorted(vars(options).items()):
        if name.startswith("mps_") and value is not None:
            raise pytest.UsageError(f"--{name.replace('_', '-')} needs --mps")


def read_settings(config: pytest.Config, options: argparse.Namespace) -> Settings:
    """All of them. Raises UsageError for values that make no sense."""
    require = _text(config, options, "mps_require")
    if require not in (None, "real", "virtual"):
        raise pytest.UsageError(f"mps_require must be real or virtual, not {require!r}")
    manifest = _path(config, options, "mps_manifest")
    update = options.mps_update_manifest is True
    if update and manifest is None:
        raise pytest.UsageError("--mps-update-manifest needs --mps-manifest FILE (ini: mps_manifest)")
    baseline = _path(config, options, "mps_baseline")
    update_baseline = options.mps_update_baseline is True
    if update_baseline and baseline is None:
        raise pytest.UsageError("--mps-update-baseline needs --mps-baseline FILE (ini: mps_baseline)")
    return Settings(
        mac=_text(config, options, "mps_mac"),
        require=require,
        fallback=_flag(config, options, "mps_fallback"),
        fail_on_fallback=_flag(config, options, "mps_fail_on_fallback") is True,
        manifest=manifest,
        update_manifest=update,
        default_device=_flag(config, options, "mps_default_device") is True,
        recording=_path(config, options, "mps_recording"),
        baseline=baseline,
        update_baseline=update_baseline,
        reports=tuple(options.mps_report or ()),
    )


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
    return str(value) if value is not None else str(config.getini(name)).strip() or None


def _path(config: pytest.Config, options: argparse.Namespace, name: str) -> Path | None:
    """A path of the command line lies where pytest was started, one of the configuration file beside that file."""
    value = getattr(options, name, None)
    if value is not None:
        return config.invocation_params.dir / str(value)
    text = str(config.getini(name)).strip()
    return (config.inipath.parent if config.inipath else config.rootpath) / text if text else None
