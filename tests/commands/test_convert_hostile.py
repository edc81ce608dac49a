"""Checkpoints that are damaged, cut short or hostile: `anymps convert` refuses them, and runs nothing in them."""

from __future__ import annotations

import argparse
import os
import pickle
import struct
import zipfile
import zlib
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
    assert refused("in.pt") == "in.pt is damaged or cut short: Bad CRC-32 for file 'in/data/0'"


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


@pytest.mark.parametrize(
    "content",
    [
        b"\x80\x02cbuiltins\neval\n.",
        b"\x80\x04\x8c\x08builtins\x8c\x04eval\x93.",
        b"\x80\x02ctorch.serialization\nload\n.",
        b"\x80\x02ctorch._utils\n_rebuild_wrapper_subclass\n.",
        b"(S'touch x'\nios\nsystem\n.",
    ],
)
def test_names_that_are_not_taken(content: bytes) -> None:
    """Each way in which a pickle can name something leads to the same refusal."""
    save_pickle(content, Path("in.pt"))
    assert "which cannot be restored without running code from the file" in refused("in.pt")


def test_a_class_is_named() -> None:
    """A checkpoint with a class of its own is refused by the name of the class."""
    torch.save({"args": argparse.Namespace(lr=1)}, "in.pt")
    assert refused("in.pt").startswith("in.pt names argparse.Namespace, which cannot be restored without running")


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"\x80\x02]r\xff\xff\xff\xff.", "memo 4294967295 after 2 instructions"),
        (
            b"\x80\x05\x96\xff\xff\xff\xff\xff\xff\xff\x00.",
            "expected 72057594037927935 bytes in a bytearray8, but only 1 remain",
        ),
        (b"\x80\x02\x82\x01.", "instruction EXT1"),
        (b"\x80\x02X\xff\xff\xff\x7fab.", "expected 2147483647 bytes in a unicodestring4, but only 3 remain"),
        (b"\x80\x02ccollections\nOrderedDict\n}b.", "a state for a class"),
        (b"\x80\x02ctorch\nSize\n)R}b.", "a state for torch.Size"),
        (b"\x80\x02ctorch\nSize\n)RK\x01K\x02s.", "items for torch.Size"),
        (b"\x80\x02ctorch\nSize\n)\x81.", "NEWOBJ class argument"),
        (b"\x80\x02K\x01Q.", "a reference to something that is not a storage"),
        (
            b"\x80\x02(X\x07\x00\x00\x00storagectorch\nSize\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpuK\x01tQ.",
            "a storage without a type",
        ),
        (
            b"\x80\x02(X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x04\x00\x00\x00../0X\x03\x00\x00\x00cpuK\x01tQ.",
            "a storage with the key '../0'",
        ),
        (
            b"\x80\x02(X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x009X\x03\x00\x00\x00cpuK\x01tQ.",
            "storage 9 has no bytes of 4",
        ),
        (
            b"\x80\x02(X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpuK\xfftQ.",
            "storage 0 has 16 bytes of 1020",
        ),
        (b"", "pickle exhausted before seeing STOP"),
    ],
)
def test_hostile_pickles(content: bytes, why: str) -> None:
    """A pickle that asks for all memory, for other records or for what no checkpoint needs is refused at once."""
    save_pickle(content, Path("in.pt"))
    text = refused("in.pt")
    assert text.startswith(f"in.pt is damaged: its pickle cannot be read ({why}")
    assert text.endswith(f"{why})") or why == "NEWOBJ class argument"  # its end differs between versions of Python


def test_a_tensor_beyond_its_storage() -> None:
    """A tensor may not show memory that is not its own."""
    torch.save({"w": torch.ones(7)}, "in.pt")
    rewrite(Path("in.pt"), lambda _, content: content.replace(b"K\x07\x85", b"K\x70\x85"))
    assert refused("in.pt") == "in.pt is damaged: a tensor of shape [112] reaches beyond its storage 0"


def test_nested_too_deep() -> None:
    """Lists in lists without end are one line, not a crash."""
    save_pickle(b"\x80\x02" + b"]" * 50_000 + b"a" * 49_999 + b".", Path("in.pt"))
    assert refused("in.pt") == "in.pt is nested too deep to be written"


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_hostile_archives() -> None:
    """Records that stand twice, are compressed or lie elsewhere are refused; no record is ever unpacked to a path."""
    torch.save({"w": torch.ones(2)}, "in.pt")
    fresh = Path("in.pt").read_bytes()
    with zipfile.ZipFile("in.pt", "a") as archive:
        archive.writestr("in/data/0", b"x" * 8)
    assert refused("in.pt") == "in.pt is damaged or cut short: the record in/data/0 is in it 2 times"

    Path("in.pt").write_bytes(fresh)
    with zipfile.ZipFile("in.pt") as old, zipfile.ZipFile("packed.pt", "w", zipfile.ZIP_DEFLATED) as new:
        for record in old.infolist():
            new.writestr(record.filename, old.read(record))
    expected = "packed.pt is damaged or cut short: the record byteorder is compressed, which torch.save never does"
    assert refused("packed.pt") == expected

    rewrite(Path("in.pt"), lambda _, content: content, lambda name: name.replace("in/", "../../in/"))
    assert refused("in.pt") == "in.pt is a zip archive, but not one of torch.save"

    with zipfile.ZipFile("bare.pt", "w") as archive:
        archive.writestr("readme", "x")
    assert refused("bare.pt") == "bare.pt is a zip archive, but not one of torch.save"


def test_storages_over_each_other() -> None:
    """An archive whose records lie in one another, so that it would grow when it is written, is refused."""
    torch.save({"a": torch.zeros(4096), "b": torch.zeros(4000)}, "in.pt")
    with zipfile.ZipFile("in.pt") as old, zipfile.ZipFile("bad.pt", "w") as new:
        inner = zipfile.ZipInfo("in/data/1")
        inner.file_size = inner.compress_size = 16_000
        inner.CRC = zlib.crc32(bytes(16_000))
        for record in old.infolist():
            content = old.read(record)
            if record.filename == "in/data/0":
                start = new.start_dir + 30 + len(record.filename)
                content = (inner.FileHeader() + bytes(16_384))[:16_384]
            if record.filename != "in/data/1":
                new.writestr(zipfile.ZipInfo(record.filename), content)
        inner.header_offset = start
        new.filelist.append(inner)
    text = refused("bad.pt")
    # Newer versions of Python find it themselves.
    assert text in (
        "bad.pt is damaged or cut short: its storages are larger than the file",
        "bad.pt is damaged or cut short: Overlapped entries: 'in/data/0' (possible zip bomb)",
    )


def test_other_kinds_of_torch_files() -> None:
    """Programs, quantized tensors and files of other byte order are refused by what they are."""
    torch.save({"w": torch.ones(2)}, "in.pt")
    rewrite(Path("in.pt"), lambda name, content: b"big" if name.endswith("byteorder") else content)
    assert refused("in.pt") == "in.pt was saved on a machine of the other byte order: load and save it there"

    with zipfile.ZipFile("program.pt", "w") as archive:
        archive.writestr("program/constants.pkl", b"")
        archive.writestr("program/data.pkl", b"")
    assert refused("program.pt") == "program.pt is a TorchScript program: save its state_dict(), and convert that"

    save_pickle(b"\x80\x02ctorch\nQInt8Storage\n.", Path("quantized.pt"))
    assert refused("quantized.pt") == (
        "quantized.pt holds quantized tensors (torch.QInt8Storage), for which MPS has no kernels: "
        "save the model before it is quantized"
    )
    save_pickle(b"\x80\x02ctorch\nbits8\n.", Path("bits.pt"))
    assert refused("bits.pt") == "bits.pt holds tensors of torch.bits8, which MPS cannot hold"


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", "in.pt is empty"),
        (b"hello, world", "in.pt is neither a safetensors file nor a torch.save file, or its start is damaged"),
        (pickle.dumps([1]), "in.pt is neither a safetensors file nor a torch.save file, or its start is damaged"),
    ],
)
def test_no_checkpoints(content: bytes, text: str) -> None:
    """Other files are told apart by their first bytes."""
    Path("in.pt").write_bytes(content)
    assert refused("in.pt") == text
