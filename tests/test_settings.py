"""Each setting is a row that all faces know: commands, pytest, `%%mps`, `enable`, pyproject.toml, the page."""

from __future__ import annotations

import ast
import inspect
import os
import re
from dataclasses import fields
from pathlib import Path

import click
import pytest

import anymps
import settings_page
from anymps._command_settings import FACES, PlanSettings, RunSettings, rows_of
from anymps._errors import EnableError, UsageError
from anymps._setting_row import Row
from anymps._settings import FORMATS, Settings, asked_for, row_of, rows, variable_of
from anymps.commands import _commands
from anymps.findings import FAIL_ON, read_settings
from anymps.pytest_plugin._options import OPTIONS
from processes import run_command

COMMANDS = [face for face in FACES if face != "pytest"]
SOURCE = Path(anymps.__file__).parent
# Variables that processes of anymps hand to each other, names of macros, and what only a developer sets.
INTERNAL = {
    "ANYMPS_GPU_RANK", "ANYMPS_CHILD", "ANYMPS_CHILD_RANK", "ANYMPS_LIFELINE", "ANYMPS_SUPERVISOR",
    "ANYMPS_RERUN", "ANYMPS_METAL_FIBERS", "ANYMPS_KERNEL", "ANYMPS_ANY_ORDER",
}  # fmt: skip
HERE = {"-m", "--help", "-h"}  # what to run, and how processes of a command call it


def command_of(face: str) -> click.Command:
    """`kernels list` is a command of the group `kernels`."""
    found: click.Command | None = _commands
    for part in face.split():
        assert isinstance(found, click.Group)
        found = found.get_command(click.Context(found), part)
    assert found is not None
    return found


def options_of(command: str) -> dict[str, click.Option]:
    """The options of a command, by their flags."""
    found = command_of(command).params
    return {
        flag: option
        for option in found
        if isinstance(option, click.Option)
        for flag in (*option.opts, *option.secondary_opts)
    }


def test_a_setting_has_one_name() -> None:
    """Its key is its option without dashes, its argument of `enable` has underscores: docs/settings.md says so."""
    shared = [row for row in rows() if row.key or row.enable]
    assert len(shared) > 5
    assert [row.flag for row in shared if row.key not in ("", row.flag[2:])] == []
    assert [row.flag for row in shared if row.enable and row.name != row.flag[2:].replace("-", "_")] == []


def test_a_release_is_a_word_where_the_row_says_so() -> None:
    """It is taken, and named in the usage line and in what refuses another text."""
    assert [row_of("kernels").takes(word) for word in ("real", "2.15", "2.15.1", "2", "2.15.x", "mps")] == (
        [True, True, True, False, False, False]
    )
    assert not row_of("substrate").takes("2.15")
    option = options_of("compare")["--with"]
    context = click.Context(click.Command("compare"))
    assert option.type.get_metavar(option, context) == "[cpu|mps|cuda|RELEASE]"
    with pytest.raises(click.BadParameter) as error:
        option.type.convert("tpu", option, context)
    assert error.value.message == "'tpu' is not cpu, mps, cuda or a release of torch, such as 2.15."


def test_a_seed_is_a_word_where_the_row_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the variable's 0 asks for nothing. An option without a word leaves the one that the variable has."""
    row = row_of("check_shaders")
    assert [row.takes(word) for word in ("all", "1", "77", "-1", "1.5", "some")] == [True] * 3 + [False] * 3
    option = options_of("run")["--check-shaders"]
    context = click.Context(click.Command("run"))
    assert option.type.get_metavar(option, context) == "[all|SEED]"
    for before, given, expected in (
        *(("0", None, None), ("", "1", "1"), ("0", "1", "1"), ("all", "1", "all"), ("7", "1", "7")),
        *(("all", "7", "7"), ("7", "all", "all"), ("7", None, "7")),
    ):
        monkeypatch.setenv(row.variable, before)
        Settings(check_shaders=given).hand_on()
        assert asked_for(row.name) == expected


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_has_the_options_of_its_rows(command: str) -> None:
    """Those and no others, with the row's help, words and default."""
    options = options_of(command)
    expected = set()
    for row in rows_of(command):
        option = options[row.flag]
        expected |= {row.flag, *([row.short] if row.short else [])}
        expected |= {row.flag.replace("--", "--no-", 1)} if row.kind == "switch" else set()
        assert option.help == (row.helps.get(command, row.help) or None)
        assert option.name == row.name
        assert option.multiple == (row.kind == "texts")
        if row.kind == "word":
            assert isinstance(option.type, click.Choice)
            assert tuple(option.type.choices) == row.words
    assert set(options) - HERE == expected


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_that_is_told_nothing_has_the_defaults(command: str) -> None:
    """What a function is given without any option is an object of its class with nothing set."""
    found = command_of(command)
    arguments = [one for one in found.params if isinstance(one, click.Argument) and one.required]
    context = found.make_context(command, ["x" for one in arguments for _ in range(abs(one.nargs))])
    values = {row.name: context.params[row.name] for row in rows_of(command)}
    assert FACES[command](**values) == FACES[command]()


def test_rows_name_faces_that_there_are() -> None:
    """A shared row has commands, a help, and another one only for commands that have it; all flags are different."""
    for row in rows():
        assert row.commands
        assert set(row.commands) <= set(COMMANDS)
        assert set(row.helps) <= set(row.commands)
        assert row.help
        assert bool(row.page) == bool(row.variable)
    for face in FACES:
        flags = [row.flag for row in rows_of(face)]
        assert len(flags) == len(set(flags))


def test_the_words_are_those_of_the_packages() -> None:
    """Forms and severities are named by those who make them; the rows cannot import these."""
    assert row_of("fail_on").words == FAIL_ON
    form = next(row for row in rows_of("report") if row.name == "form")
    assert form.words == FORMATS
    assert f"Formats: {', '.join(FORMATS)};" in row_of("reports").help


def test_enable_takes_what_the_rows_say() -> None:
    """Its arguments are those rows, and the one that is no setting; `device` gives all of them."""
    arguments = set(inspect.signature(anymps.enable).parameters)
    assert arguments - {"quiet"} == {row.name for row in rows() if row.enable} == set(Settings().device())


def test_pytest_takes_what_the_rows_say() -> None:
    """Each row is an option with a twin, beside the one that switches all of it on."""
    assert [option.row for option in OPTIONS[1:]] == list(rows_of("pytest"))
    assert [option.flag for option in OPTIONS[1:]] == [row.pytest_flag for row in rows_of("pytest")]


def test_a_project_takes_what_the_rows_say(tmp_path: Path) -> None:
    """The keys of pyproject.toml are those of rows, and three that only a project has."""
    (tmp_path / "pyproject.toml").write_text("[tool.anymps]\nx = 1\n")
    with pytest.raises(UsageError) as error:
        read_settings(tmp_path)
    known = set(str(error.value).rpartition("there are ")[2].split(", "))
    assert known == {row.key for row in rows() if row.key} | {"disable", "per-file-disable", "severity"}


@pytest.mark.parametrize("path", settings_page.pages(), ids=lambda path: path.name)
def test_the_pages_are_in_step(path: Path) -> None:
    """Each page holds the tables that `python -m tests.pages` writes."""
    assert settings_page.pages()[path] == path.read_text(encoding="utf-8")


def test_the_page_knows_every_variable() -> None:
    """Each ANYMPS_ variable that the code names is on the page, unless only anymps itself sets it."""
    text = settings_page.PAGE.read_text(encoding="utf-8")
    named = {
        node.value
        for path in SOURCE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        if re.fullmatch(r"ANYMPS_[A-Z_]+[A-Z]", node.value)
    }
    assert {variable_of("mac"), "ANYMPS_CACHE_DIR"} <= named
    assert sorted(name for name in named - INTERNAL if f"`{name}" not in text) == []


def test_no_variable_is_written_twice() -> None:
    """The variable of a setting stands in its row alone."""
    own = {row.variable for row in rows() if row.variable.startswith("ANYMPS_")}
    again = {
        (path.relative_to(SOURCE).as_posix(), node.value)
        for path in SOURCE.rglob("*.py")
        if path.name != "_settings.py" or path.parent != SOURCE
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and node.value in own
    }
    assert again == set()


FLAGS = [row for row in rows() if row.variable and row.kind == "flag"]


@pytest.mark.parametrize("row", FLAGS, ids=lambda row: row.name)
def test_a_flag_in_the_environment(row: Row, monkeypatch: pytest.MonkeyPatch) -> None:
    """1 asks for it; 0, nothing and no variable say nothing; another value is one line."""
    for text, expected in (("1", True), (" 1 ", True), ("0", None), ("", None)):
        monkeypatch.setenv(row.variable, text)
        assert asked_for(row.name) is expected
    monkeypatch.setenv(row.variable, "yes")
    with pytest.raises(EnableError) as error:
        asked_for(row.name)
    assert str(error.value) == f"anymps: {row.variable}='yes' must be 1 or 0"
    monkeypatch.delenv(row.variable)
    assert asked_for(row.name) is None
    assert asked_for(row.name, False) is False
    assert os.environ[row.variable] == "0"


def test_a_word_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of its words, which a given one goes before; another is one line."""
    monkeypatch.setenv("ANYMPS_SUBSTRATE", "cuda")
    assert asked_for("substrate") == "cuda"
    monkeypatch.setenv("ANYMPS_SUBSTRATE", "tpu")
    with pytest.raises(EnableError) as error:
        asked_for("substrate")
    assert str(error.value) == "anymps: ANYMPS_SUBSTRATE='tpu' must be host or cuda"
    assert asked_for("substrate", "host") == "host"
    assert os.environ["ANYMPS_SUBSTRATE"] == "host"


def test_the_project_speaks_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For what neither the command line nor the environment names; only for the device."""
    (tmp_path / "pyproject.toml").write_text('[tool.anymps]\nmac = "M1 8GB"\nsubstrate = "host"\nfail-on = "error"\n')
    project = read_settings(tmp_path)
    monkeypatch.delenv("ANYMPS_MAC", raising=False)
    monkeypatch.delenv("ANYMPS_SUBSTRATE", raising=False)
    assert RunSettings(live=True).filled(project) == RunSettings(live=True, mac="M1 8GB", substrate="host")
    assert RunSettings(mac="M2 8GB").filled(project).mac == "M2 8GB"
    monkeypatch.setenv("ANYMPS_MAC", "M4 16GB")
    assert RunSettings().filled(project) == RunSettings(substrate="host")


def test_what_child_processes_are_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """What `enable` takes it hands on itself; of the rest, what is switched on."""
    names = [row.variable for row in rows() if row.variable and not row.enable]
    for name in names:
        monkeypatch.setenv(name, "")
    RunSettings().hand_on()
    assert [os.environ[name] for name in names] == [""] * len(names)
    RunSettings(alone=True, strict_copies=True, cuda_as_mps=True).hand_on()
    given = {name for name in names if os.environ[name] == "1"}
    assert given == {"ANYMPS_ALONE", "ANYMPS_STRICT_COPIES"}


def test_a_row_of_one_command_hides_no_shared_one() -> None:
    """A class adds fields, and gives none of `Settings` another meaning."""
    shared = {field.name for field in fields(Settings)}
    for kind in FACES.values():
        assert not {name for name in kind.__annotations__ if name in shared}
    assert PlanSettings().steps == 3


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("anymps run --subs", ["--substrate"]),
        ("anymps run --substrate ", ["host", "cuda"]),
        ("anymps report --fail-on w", ["warning"]),
        ("anymps be", ["bench"]),
    ],
)
def test_completion(typed: str, expected: list[str]) -> None:
    """A shell is offered commands, options and the words of an option."""
    words = typed.split(" ")
    shell = {"_ANYMPS_COMPLETE": "bash_complete", "COMP_WORDS": typed, "COMP_CWORD": str(len(words) - 1)}
    assert [line.partition(",")[2] for line in run_command("-m", "anymps", env=shell).lines] == expected
