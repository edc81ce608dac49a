"""Checkpoints that are damaged, cut short or hostile: `anymps convert` refuses them, and runs nothing in them."""

from __future__ import annotations

import argparse
import os
import pickle
import struct
import sys
import zipfile
from pathlib import Path

import pytest
import torch

from anymps.commands import main
from checkpoint_files import evil_pickle, rewrite, save_pickle, write_safetensors
from conversions import F64, refused, save_sample

pytestmark = pytest.mark.usefixtures("in_tmp_path")


@pytest.mark.parametrize("kind", ["new.pt", "old.pt", "one.safetensors"])
def test_cut_short_anywhere(kind: str) -> None:
    """A file that ends early is one line, wherever it ends, and an older target is what it was."""
    if kind == "one.safetensors":
        told = {"w": {"dtype": "F64", "shape": [9], "data_offsets": [0, 72]}}
        write_safetensors(Path(kind), told, struct.pack("<9d", *range(9)))
    else:
        save_sample(kind, old_format=kind == "old.pt")
    whole = Path(kind).read_bytes()
    cut, target = Path(f"cut{Path(kind).suffix}"), Path(f"target{Path(kind).suffix}")
    target.write_bytes(b"older")
    for length in sorted({*range(0, len(whole), max(1, len(whole) // 150)), *range(40), len(whole) - 1}):
        cut.write_bytes(whole[:length])
        assert refused(cut, target, force=True).startswith("cut.")
    assert target.read_bytes() == b"older"


@pytest.mark.parametrize("old_format", [False, True])
def test_damage_anywhere(old_format: bool, capsys: pytest.CaptureFixture[str]) -> None:
    """A byte that is wrong makes a refusal of one line or a file, and never a fault of ours."""
    save_sample("in.pt", old_format=old_format)
    whole = Path("in.pt").read_bytes()
    for place in range(0, len(whole), 23):
        Path("bad.pt").write_bytes(whole[:place] + bytes([whole[place] ^ 0x55]) + whole[place + 1 :])
        status = main(["convert", "bad.pt", "out.pt", "--force"])
        out, err = capsys.readouterr()
        assert (status, err) == (0, "") or (status, out, err.count("\n")) == (2, "", 1)


def test_wrong_checksum() -> None:
    """A value that changed on the disk is found."""
    torch.save({"w": torch.full((9,), 3.0, dtype=F64)}, "in.pt")
    content = Path("in.pt").read_bytes()
    value = struct.pack("<d", 3.0)
    Path("in.pt").write_bytes(content.replace(value, struct.pack("<d", 4.0), 1))
    assert refused("in.pt") == "in.pt cannot be read: the checksum of in/data/0 is wrong"


@pytest.mark.parametrize("old_format", [False, True])
def test_nothing_is_run(tmp_path: Path, old_format: bool) -> None:
    """A pickle that would run a command is refused by the command's name, and the command is not run."""
    mark = tmp_path / "mark"
    if old_format:
        torch.save({"w": torch.ones(1)}, "in.pt", _use_new_zipfile_serialization=False)
        content = Path("in.pt").read_bytes()
        start = content.index(b"}q", content.index(b"type_sizes"))
        end = content.index(b".", content.index(b"type_sizes")) + 1
        assert start < end
        Path("in.pt").write_bytes(content[:end] + evil_pickle(mark) + content[end:])
    else:
        save_pickle(evil_pickle(mark), Path("in.pt"))
    assert refused("in.pt") == (
        f"in.pt names {os.system.__module__}.system, which cannot be restored without running code from the file: "
        "save it again with only the state dict and plain values"
    )
    assert not mark.exists()


def test_a_class_is_named() -> None:
    """A checkpoint with a class of its own is refused by the name of the class."""
    torch.save({"args": argparse.Namespace(lr=1)}, "in.pt")
    assert refused("in.pt").startswith("in.pt names argparse.Namespace, which cannot be restored without running")


def test_hostile_pickles() -> None:
    """A pickle that asks for what torch does not read is refused, with torch's reason."""
    save_pickle(b"\x80\x05\x96\xff\xff\xff\xff\xff\xff\xff\x00.", Path("in.pt"))
    assert refused("in.pt") == "in.pt cannot be read: Unsupported operand 150"


@pytest.mark.skipif(sys.platform != "linux", reason="limits of memory hold on Linux")
@pytest.mark.parametrize("content", [b"}" * 20_000_000, b"cbuiltins\nbytearray\nJ\x00\x00\x00\x7f\x85R"])
def test_more_memory_than_a_file_is_large(content: bytes) -> None:
    """A small file that becomes GiB in memory is refused at half a GiB."""
    save_pickle(b"\x80\x02" + content + b".", Path("in.pt"))
    assert refused("in.pt") == "in.pt takes far more memory than its size, and is not read"


def test_a_tensor_beyond_its_storage() -> None:
    """A tensor may not show memory that is not its own."""
    torch.save({"w": torch.ones(7)}, "in.pt")
    rewrite(Path("in.pt"), lambda _, content: content.replace(b"K\x07\x85", b"K\x70\x85"))
    assert refused("in.pt") == "in.pt cannot be read: Trying to resize storage that is not resizable"


def test_one_tensor_as_large_as_many() -> None:
    """A file whose storages lie in one another, so that it would grow when it is written, is refused."""
    torch.save({"a": torch.zeros(4096), "b": torch.zeros(4096).half()}, "in.pt")
    rewrite(Path("in.pt"), lambda _, content: content.replace(b"M\x00\x10tq", b"M\x00\x70tq"))
    assert refused("in.pt") == "in.pt cannot be read: its storages are larger than the file"


@pytest.mark.parametrize("depth", [2_000, 300_000])
def test_nested_too_deep(depth: int) -> None:
    """Lists in lists without end are one line, not a crash."""
    save_pickle(b"\x80\x02" + b"]" * depth + b"a" * (depth - 1) + b".", Path("in.pt"))
    assert refused("in.pt").endswith(": maximum recursion depth exceeded")


def test_a_device_that_is_a_number(capsys: pytest.CaptureFixture[str]) -> None:
    """What a file names as a device need not be a name."""
    torch.save({"w": torch.ones(2)}, "in.pt", _use_new_zipfile_serialization=False)
    content = Path("in.pt").read_bytes()
    Path("in.pt").write_bytes(content.replace(b"X\x03\x00\x00\x00cpu", b"K\x04", 1))
    assert main(["convert", "in.pt", "out.pt"]) == 0
    assert "  all tensors: 4 -> cpu\n" in capsys.readouterr().out


def test_hostile_archives() -> None:
    """Records that are compressed, or are not those of torch.save, are refused; none is ever unpacked to a path."""
    torch.save({"w": torch.ones(2)}, "in.pt")
    with zipfile.ZipFile("in.pt") as old, zipfile.ZipFile("packed.pt", "w", zipfile.ZIP_DEFLATED) as new:
        for record in old.infolist():
            new.writestr(record.filename, old.read(record))
    assert refused("packed.pt") == "packed.pt cannot be read: its records are compressed or overlap"
    rewrite(Path("in.pt"), lambda _, content: content, lambda name: name.replace("in/", "../../in/"))
    assert refused("in.pt").startswith("in.pt cannot be read: ")


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")
@pytest.mark.parametrize("dtype", [torch.qint8, torch.bits8])
def test_types_that_mps_cannot_hold(dtype: torch.dtype) -> None:
    """They are refused by their name."""
    packed = torch.quantize_per_tensor(torch.ones(2), 0.1, 0, dtype) if dtype is torch.qint8 else None
    torch.save({"w": torch.zeros(2).view(dtype) if packed is None else packed}, "in.pt")
    assert refused("in.pt") == f"in.pt holds tensors of {dtype} (w), which MPS cannot hold"


def test_wide_tensors_that_are_not_dense() -> None:
    """A sparse tensor of float64 is refused; nothing of it is dropped in silence."""
    torch.save({"w": torch.eye(2, dtype=F64).to_sparse()}, "in.pt")
    expected = "in.pt holds float64 tensors that are sparse, nested or without data (w): save them as dense tensors"
    assert refused("in.pt") == expected


@pytest.mark.parametrize("content", [b"", b"hello, world", pickle.dumps([1])])
def test_no_checkpoints(content: bytes) -> None:
    """Other files are told apart by their first bytes."""
    Path("in.pt").write_bytes(content)
    assert refused("in.pt") == "in.pt is neither a safetensors file nor a torch.save file"
