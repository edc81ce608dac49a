"""What a packed field holds, a column of it holds too: no number that is let in is too large to be packed again."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from anymps._errors import RecordingError
from anymps.commands import main
from anymps.record import Phase, RecordingBuilder, RecordingWriter
from anymps.record.format import ALLOCATION, ENTRY
from processes import Result

COLUMNS = [(packed, name) for packed in (ENTRY, ALLOCATION) for name in packed.columns]
WORDS = ("phase", "died_phase", "wait", "direction", "flags", "role")
CELLS = [(packed.table, name, packed.ranges[name]) for packed, name in COLUMNS if name not in WORDS]
CELLS += [("steps", "step", ENTRY.ranges["step"])]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed recording with two calls, one buffer that was freed, one that was not, and a step."""
    path = tmp_path_factory.mktemp("run") / "run.anymps"
    builder = RecordingBuilder(RecordingWriter(path, {"torch_version": "2.13.0", "mac_details": "Apple M1: 8 GB"}))
    line = builder.site("train.py", 3, "main", "y = x + 1")
    for start in (10, 20):
        builder.entry("aten::add.Tensor", start_ns=start, duration_ns=5, phase=Phase.FORWARD, site=line)
    builder.free(builder.allocation(256, "aten::add.Tensor", time_ns=12, site=line), time_ns=30)
    builder.allocation(512, "aten::add.Tensor", time_ns=22, site=line)
    builder.end_step(100)
    builder.close().close()
    return path


def changed(run: Path, folder: Path, table: str, column: str, value: int) -> Path:
    """A copy in which the last row holds this number."""
    path = folder / "changed.anymps"
    shutil.copyfile(run, path)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = (SELECT MAX(rowid) FROM {table})", (value,))
    return path


def anymps(capsys: pytest.CaptureFixture[str], *arguments: object) -> Result:
    """The command in this process."""
    status = main(list(map(str, arguments)))
    said = capsys.readouterr()
    return Result(status, said.out, said.err)


def test_the_table_is_the_documented_format() -> None:
    """docs/architecture/recording-file.md names both for those who read a recording without us."""
    assert (ENTRY.format, ENTRY.size) == ("<qqqqIIIIIBBBBII", 64)
    assert (ALLOCATION.format, ALLOCATION.size) == ("<QQQqqQQQQIIIIIBBB1x", 96)
    packed = ENTRY.pack(*range(15))
    assert list(ENTRY.iter_unpack(packed * 2)) == [tuple(range(15))] * 2
    assert list(ENTRY.iter_rows(packed * 2)) == [(*range(13), 14)] * 2  # without the refusal
    assert list(ENTRY.iter_field("refusal", packed * 2)) == [13, 13]
    assert (ENTRY.bytes_of("wait"), ENTRY.bytes_of("refusal")) == (range(53, 54), range(56, 60))
    assert list(ALLOCATION.iter_rows(ALLOCATION.pack(*range(17)))) == [tuple(range(17))]


@pytest.mark.parametrize("packed", [ENTRY, ALLOCATION], ids=lambda packed: packed.table)
def test_each_field_holds_its_range(packed: type(ENTRY)) -> None:  # type: ignore[valid-type]
    """The least and the most can be packed; what no field of its width holds is a RecordingError of one line."""
    for bound in (0, 1):
        values = [packed.ranges[name][bound] for name in packed.ranges]
        (unpacked,) = packed.iter_unpack(packed.pack(*values))
        assert list(unpacked) == values
    for place, name in enumerate(packed.ranges):
        values = [0] * len(packed.ranges)
        values[place] = 1 << 64
        with pytest.raises(RecordingError) as caught:
            packed.pack(*values)
        least, most = packed.ranges[name]
        assert str(caught.value) == f"{name} {1 << 64} does not fit a recording: {least} to {most}"


@pytest.mark.parametrize(
    ("table", "column", "range_"), CELLS, ids=lambda parameter: parameter if isinstance(parameter, str) else ""
)
def test_larger_numbers_do_not_cross_the_border(
    table: str, column: str, range_: tuple[int, int], run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """They are refused in one line, and the largest that cross end no command with a fault."""
    other = shutil.copyfile(run, tmp_path / "other.anymps")
    for value in {range_[0] - 1, range_[1] + 1}:
        if not -(1 << 63) <= value < 1 << 63:
            continue
        path = changed(run, tmp_path, table, column, value)
        line = (
            f"anymps: {path} is damaged ({table}.{column} holds an impossible value): "
            "record again, or use an intact copy\n"
        )
        assert anymps(capsys, "report", path, other) == Result(2, "", line)
    path = changed(run, tmp_path, table, column, range_[1])
    twice = shutil.copyfile(path, tmp_path / "twice.anymps")
    for files in ([path], [path, twice, other]):
        result = anymps(capsys, "report", "--format", "json", *files)
        assert result.status in (0, 1, 2), result
        assert result.status != 2 or result.err.count("\n") == 1, result.err


def test_what_adds_up_to_too_much(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Numbers and clocks go on from one recording to the next; where they leave their range, one line says so."""
    files = {}
    for table, column, value in (("entries", "step", (1 << 32) - 1), ("entries", "start_ns", 1 << 60)):
        (folder := tmp_path / column).mkdir()
        files[column] = changed(run, folder, table, column, value)
    after = shutil.copyfile(run, tmp_path / "after.anymps")
    sums = {
        "step": f"died_step {1 << 32} does not fit a recording: 0 to {(1 << 32) - 1}",
        "start_ns": "these recordings cannot be joined: their numbers add up to more than a recording can hold",
    }
    for column, line in sums.items():
        assert anymps(capsys, "report", files[column], after) == Result(2, "", f"anymps: {line}\n")
    assert sorted(file.name for file in tmp_path.iterdir() if file.is_file()) == ["after.anymps"]
