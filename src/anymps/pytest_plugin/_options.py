"""The options of `pytest --mps`, each with its twin in the configuration file, and the marks. Loads nothing else."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import pytest

from anymps._command_settings import PytestSettings, rows_of
from anymps._paths import whole_path
from anymps._setting_row import Row

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
class Option:
    """One option: `name` with underscores is its twin in the configuration file, with hyphens the command line's."""

    name: str
    kind: Literal["flag", "text", "file", "reports"]
    help: str
    metavar: str | None = None
    row: Row | None = None

    @classmethod
    def of(cls, row: Row) -> Option:
        """The option of a setting."""
        name = row.pytest_flag.removeprefix("--").replace("-", "_")
        if row.kind in ("flag", "switch") or row.bare:
            return cls(name, "flag", row.pytest, row=row)
        if row.kind == "texts":
            return cls(name, "reports", row.pytest, row.metavar, row)
        if row.kind == "file":
            return cls(name, "file", row.pytest, "FILE", row)
        return cls(name, "text", row.pytest, row.placeholder, row)

    @property
    def flag(self) -> str:
        """As the command line has it."""
        return "--" + self.name.replace("_", "-")


OPTIONS = (
    Option("mps", "flag", "run the tests with an mps device: the Mac's own, else a virtual one"),
    *map(Option.of, rows_of("pytest")),
)
"""All of them. A switch has its opposite on the command line, `--no-mps` and so on."""


def add_options(parser: pytest.Parser) -> None:
    """Declare them. On the command line the default is None: only then does the configuration file speak."""
    group = parser.getgroup("mps", "mps device (anymps)")
    for option in OPTIONS:
        words: dict[str, Any] = {"dest": option.name, "default": None, "help": option.help}
        if option.kind == "flag":
            group.addoption(option.flag, action=argparse.BooleanOptionalAction, **words)
            parser.addini(option.name, option.help, type="bool", default=None)
        elif option.kind == "reports":
            group.addoption(option.flag, action="append", metavar=option.metavar, **words)
            parser.addini(option.name, f"{option.help} (one a line)", type="linelist", default=[])
        else:
            group.addoption(option.flag, metavar=option.metavar, **words)
            parser.addini(option.name, option.help, default="")


def wanted(config: pytest.Config, options: argparse.Namespace) -> bool:
    """Whether `--mps` is on."""
    return _flag(config, options, "mps") is True


def check_unused(options: argparse.Namespace) -> None:
    """Raise UsageError for an option that has no effect without `--mps`, unless that was taken back by `--no-mps`."""
    if getattr(options, "mps", None) is False:
        return
    for option in OPTIONS:
        if getattr(options, option.name, None) is not None:
            raise pytest.UsageError(f"{option.flag} needs --mps")


def read_settings(config: pytest.Config, options: argparse.Namespace) -> PytestSettings:
    """All of them. Raises UsageError for values that make no sense."""
    values: dict[str, Any] = {}
    for option in OPTIONS:
        if option.row is not None:
            value = _READ[option.kind](config, options, option.name)
            if option.row.bare:
                value = option.row.bare if value else None
            if option.row.words and value is not None and not option.row.takes(value):
                words = option.row.choices
                raise pytest.UsageError(f"{option.flag} ({option.name}) must be {words}, not {value!r}")
            values[option.row.name] = option.row.default if value is None else value
    for name in ("manifest", "baseline"):
        if values[f"update_{name}"] and values[name] is None:
            raise pytest.UsageError(f"--mps-update-{name} needs --mps-{name} FILE")
    return PytestSettings(**values, reports_from=_directory(config, options, "mps_report"))


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
    path = whole_path(_directory(config, options, name) / text)
    _check_root(config, name, text, path)
    return path


def _reports(config: pytest.Config, options: argparse.Namespace, name: str) -> tuple[str, ...]:
    given = getattr(options, name, None)
    return tuple(text for text in (given if given is not None else config.getini(name)) if text)


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
                f"{flag} {text} is outside of the suite, and would move pytest's root directory, which test ids "
                f"depend on, to {root}: write {flag}={text}"
            )


def _directory(config: pytest.Config, options: argparse.Namespace, name: str) -> Path:
    """A path of the command line lies where pytest was started, one of the configuration file beside that file."""
    if getattr(options, name, None) is not None or config.inipath is None:
        return config.invocation_params.dir
    return config.inipath.parent


_READ: Final[Mapping[str, Callable[[pytest.Config, argparse.Namespace, str], Any]]] = {
    "flag": _flag,
    "text": _text,
    "file": _path,
    "reports": _reports,
}
"""What reads an option, by its kind; None for one that was not given."""
