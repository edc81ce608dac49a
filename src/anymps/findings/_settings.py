"""What a project says about its findings: `[tool.anymps]` in the nearest `pyproject.toml` that has it."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from anymps._errors import MacError, UsageError
from anymps._paths import whole_path
from anymps._settings import row_of
from anymps._text import listed
from anymps.findings._severity import Severity
from anymps.mac import parse_mac

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FAIL_ON: Final = (*(severity.label for severity in Severity), "never")
"""The words of `fail-on`."""

_LONGEST: Final = 80  # characters of a value that a message quotes


@dataclass(frozen=True)
class Settings:
    """The settings of a project. `root` is its directory: files are named from it.

    `mac` is the Mac to be, `substrate` what computes; empty if not set. `severity` replaces that of rules, by id;
    `disable` leaves rules out, `per_file_disable` those for files that match a pattern (`tests/*`). `fail_on`: a
    finding of this severity or above fails a run, None if none does. `baseline` is the file of known findings.
    """

    root: Path
    mac: str = ""
    substrate: str = ""
    severity: Mapping[str, Severity] = field(default_factory=dict)
    disable: frozenset[str] = frozenset()
    per_file_disable: Mapping[str, frozenset[str]] = field(default_factory=dict)
    fail_on: Severity | None = None
    baseline: Path | None = None


def read_settings(start: Path) -> Settings:
    """The settings for a script or directory: of the first `pyproject.toml` with `[tool.anymps]`, from there upwards.

    Where there is none, the defaults, and as root the directory of the nearest `pyproject.toml` or of `start`.
    Raises UsageError, in one line, for a file that cannot be read, an unknown key (with the nearest right one) or a
    value that does not fit.
    """
    here = whole_path(start)  # `..` would make the folder before it one above
    here = here if here.is_dir() else here.parent
    root = None
    for directory in (here, *here.parents):
        file = directory / "pyproject.toml"
        if not file.is_file():
            continue
        root = root or directory
        table = _table(file)
        if table is not None:
            return _settings(file, table)
    return Settings(root or here)


def parse_fail_on(word: str) -> Severity | None:
    """The severity that a word of `FAIL_ON` means, None for `never`."""
    return None if word == "never" else Severity[word.upper()]


def _table(file: Path) -> Mapping[str, Any] | None:
    try:
        document = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}") from error
    except ValueError as error:  # TOMLDecodeError and UnicodeDecodeError
        raise UsageError(f"{file} is not valid TOML: {error}") from error
    except RecursionError:
        raise UsageError(f"{file} is not valid TOML: it is nested too deep") from None
    tool = document.get("tool")
    table = tool.get("anymps") if isinstance(tool, dict) else None
    if table is not None and not isinstance(table, dict):
        raise UsageError(f"{file}: [tool.anymps] is not a table")
    return table


def _settings(file: Path, table: Mapping[str, Any]) -> Settings:
    readers: dict[str, Callable[[str, Any], Any]] = {
        "mac": _mac,
        "substrate": lambda key, value: _one_of(key, value, row_of("substrate").words),
        "severity": _severity,
        "disable": _rules,
        "per-file-disable": _per_file,
        "fail-on": lambda key, value: parse_fail_on(_one_of(key, value, FAIL_ON)),
        "baseline": lambda key, value: whole_path(file.parent / _text(key, value)),
    }
    values: dict[str, Any] = {}
    try:
        for key, value in table.items():
            if key not in readers:
                nearest = difflib.get_close_matches(key, readers, n=1)
                hint = f"the nearest is {nearest[0]!r}" if nearest else f"there are {', '.join(readers)}"
                raise _WrongError(f"has no key {key!r}: {hint}")
            values[key.replace("-", "_")] = readers[key](key, value)
    except _WrongError as error:
        raise UsageError(f"{file}: [tool.anymps] {error}") from None
    return Settings(file.parent, **values)


class _WrongError(Exception):
    """A key or value that does not fit, in words."""


def _rule(key: str, name: object) -> str:
    from anymps.findings._registry import RULES, nearest_rule  # all rules, which take their time to load

    if isinstance(name, str) and name in RULES:
        return name
    nearest = nearest_rule(str(name)[:_LONGEST])
    hint = f"the nearest is {nearest}" if nearest else "`anymps explain` lists them"
    raise _WrongError(f"{key}: there is no rule {_quoted(name)}, {hint}")


def _quoted(value: object) -> str:
    """A value as it stands in the file, or the beginning of it."""
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def _text(key: str, value: object) -> str:
    if not isinstance(value, str) or not value or "\0" in value:
        raise _WrongError(f"{key} must be a non-empty string, not {_quoted(value)}")
    return value


def _one_of(key: str, value: object, words: tuple[str, ...]) -> str:
    if value not in words:
        raise _WrongError(f"{key} must be {listed(words, 'or')}, not {_quoted(value)}")
    return str(value)


def _mac(key: str, value: object) -> str:
    text = _text(key, value)
    try:
        parse_mac(text)
    except MacError as error:
        raise _WrongError(f"{key}: {error.reason}") from None
    return text


def _rules(key: str, value: object) -> frozenset[str]:
    if not isinstance(value, list):
        raise _WrongError(f'{key} must be a list of rules, such as ["MPS201"], not {_quoted(value)}')
    return frozenset(_rule(key, rule) for rule in value)


def _per_file(key: str, value: object) -> dict[str, frozenset[str]]:
    if not isinstance(value, dict):
        raise _WrongError(f'{key} must be a table, such as {{ "tests/*" = ["MPS201"] }}, not {_quoted(value)}')
    return {pattern: _rules(f"{key}.{pattern}", rules) for pattern, rules in value.items()}


def _severity(key: str, value: object) -> dict[str, Severity]:
    if not isinstance(value, dict):
        raise _WrongError(f'{key} must be a table, such as {{ MPS201 = "error" }}, not {_quoted(value)}')
    words = tuple(severity.label for severity in Severity)
    return {_rule(key, rule): Severity[_one_of(f"{key}.{rule}", word, words).upper()] for rule, word in value.items()}
