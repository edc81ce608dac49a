"""Tables of facts in TOML: each row is of its type, an error in one is told, and the wheel has the files."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import asdict
from enum import Enum
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import pytest

import anymps
from anymps._tables import read_table, row
from anymps.mac._chips import Chip, chip_table
from anymps.rules import OPERATOR_LIMITS, WAITS
from anymps.rules._determinism import ALERTS
from anymps.rules._device_checks import DEVICE_CHECKS
from anymps.rules._limits import OperatorLimit
from anymps.rules.faults import all_hazards

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

SOURCE = Path(anymps.__file__).parent
RULES = (
    *("alerts", "device_checks", "dtypes", "families", "faults/faults", "limits", "metal_dtypes", "metal_kernels"),
    "waits",
)
FINDINGS = ("copies", "detours", "dtypes", "half_precision", "memory", "operators", "shaders", "waits")
TABLES = {
    *("findings/advice/reads", "mac/chips"),
    *(f"findings/rules/{name}" for name in FINDINGS),
    *(f"rules/{name}" for name in RULES),
}


def fits(value: object, hint: Any) -> bool:
    """Whether a value is of a type, as far as rows have them."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return any(fits(value, part) for part in parts)
    if origin is Literal:
        return value in parts
    if origin is tuple and parts[-1] is not ...:
        return isinstance(value, tuple) and len(value) == len(parts) and all(map(fits, value, parts))
    if origin in (tuple, frozenset):
        assert isinstance(value, Iterable)
        return isinstance(value, origin) and all(fits(item, parts[0]) for item in value)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return isinstance(value, hint)
    return type(value) is hint


@pytest.mark.parametrize(
    "rows",
    [chip_table().chips, all_hazards(), tuple(OPERATOR_LIMITS.values()), tuple(WAITS.values()), ALERTS, DEVICE_CHECKS],
    ids=["chips", "faults", "limits", "waits", "alerts", "device checks"],
)
def test_each_field_is_of_its_type(rows: tuple[Any, ...]) -> None:
    """Type checkers do not read the files."""
    hints = get_type_hints(type(rows[0]))
    wrong = [(one, name) for one in rows for name, hint in hints.items() if not fits(getattr(one, name), hint)]
    assert wrong == []


def test_each_row_has_a_source() -> None:
    """A rule about the backend needs one; chips name theirs in a table of their own."""
    table = chip_table()
    assert {name for chip in table.chips for name in chip.sources} | {"geekbench"} == table.sources.keys()
    assert [hazard.id for hazard in all_hazards() if not hazard.source] == []


def test_an_error_in_a_row_is_told(tmp_path: Path) -> None:
    """A field that the type lacks, and one that is missing."""
    known = asdict(chip_table().chips[0])
    with pytest.raises(TypeError) as error:
        row(Chip, {**known, "cores": 8})
    assert str(error.value) == "Chip.__init__() got an unexpected keyword argument 'cores'"
    (tmp_path / "limits.toml").write_text('["one limit"]\nerror = "ValueError"\n')
    with pytest.raises(TypeError) as error:
        row(OperatorLimit, read_table(str(tmp_path / "_limits.py"), "limits.toml")["one limit"])
    assert str(error.value).endswith("__new__() missing 1 required positional argument: 'text'")


def test_the_wheel_has_the_tables() -> None:
    """Everything below the package goes into it, whatever its suffix."""
    assert {path.relative_to(SOURCE).as_posix()[:-5] for path in SOURCE.rglob("*.toml")} == TABLES
    pyproject = Path(__file__).parents[1] / "pyproject.toml"
    wheel = tomllib.loads(pyproject.read_text(encoding="utf-8"))["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert wheel["packages"] == ["src/anymps"]
    assert wheel.keys() == {"packages", "force-include", "hooks"}
