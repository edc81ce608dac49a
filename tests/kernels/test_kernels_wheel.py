"""Reading compiled Metal kernels: the wheel, its library, the container; `anymps kernels`."""

from __future__ import annotations

import hashlib
import struct
import subprocess
import tracemalloc
import zipfile
from pathlib import Path

import pytest

from anymps import KernelsError
from anymps.commands import main
from anymps.kernels import add_kernels, added_releases, open_kernels
from anymps.kernels._llvm import llvm
from anymps.kernels._metadata import read_signature
from anymps.rules import installed_torch
from kernel_files import ADD, RELEASE, bitcode, library, metallib, wheel

NAME = "add_dense_float_float"
INSTALLED = str(installed_torch().version).partition("+")[0]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of the test's own."""
    monkeypatch.setenv("ANYMPS_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache" / "kernels"


def made(tmp_path: Path, content: bytes, release: str = RELEASE) -> Path:
    """A wheel with one container of kernels."""
    return wheel(tmp_path / "torch.whl", library("metal_basic", content), release)


def refused(path: Path) -> str:
    """The line that `add` has for a file."""
    with pytest.raises(KernelsError) as caught:
        add_kernels(path, RELEASE)
    return str(caught.value).replace(f"{path.parent}/", "")


def test_kernels_of_a_wheel_are_kept(tmp_path: Path, cache: Path) -> None:
    """Names and bitcode come back as they were put in; of the wheel nothing else is kept."""
    added = add_kernels(made(tmp_path, metallib({"a": b"BC\xc0\xde1234", "b": b"BC\xc0\xde5"})), RELEASE)
    again = open_kernels(RELEASE)
    assert list(again.kernels) == list(added.kernels) == ["a", "b"]
    assert again.bitcode("a") == b"BC\xc0\xde1234"
    assert again.bitcode("b") == b"BC\xc0\xde5"
    assert [path.name for path in cache.iterdir()] == ["torch-2.13.0.metallib"]
    assert added_releases() == [RELEASE]


def test_bad_wheels_are_one_line(tmp_path: Path, cache: Path) -> None:
    """No wheel, one cut short, one of Linux, of another release or without kernels: said in one line, nothing kept."""
    good = made(tmp_path, metallib({"a": b"BC"}))
    text = tmp_path / "text.whl"
    text.write_text("no wheel")
    assert refused(text) == "text.whl is not a wheel, or is cut short"
    text.write_bytes(good.read_bytes()[:-40])
    assert refused(text) == "text.whl is not a wheel, or is cut short"
    assert refused(tmp_path / "absent.whl") == "absent.whl cannot be read: No such file or directory"
    assert refused(wheel(tmp_path / "linux.whl", None)) == (
        "linux.whl is not a macOS wheel: Metal kernels are in the one that ends in macosx_14_0_arm64.whl"
    )
    assert refused(made(tmp_path, b"", "2.12.1")) == (
        "torch.whl is torch 2.12.1, not 2.13.0; to add it, name its release: --torch 2.12.1"
    )
    assert refused(wheel(tmp_path / "torch.whl", library("other", b"x"))) == (
        "torch/lib/libtorch_cpu.dylib of torch.whl holds no Metal kernels (section metal_basic)"
    )
    assert refused(wheel(tmp_path / "torch.whl", b"\x7fELF" * 20)) == (
        "torch/lib/libtorch_cpu.dylib of torch.whl cannot be read: it is not a 64-bit Mach-O library"
    )
    assert refused(wheel(tmp_path / "torch.whl", library("metal_basic", bytes(500))[:-100])) == (
        "torch/lib/libtorch_cpu.dylib of torch.whl ends in the middle of its Metal kernels"
    )
    for odd in (b"2.13.0\xff", b"2." + b"1" * 100, "2.١٣".encode()):
        with zipfile.ZipFile(text, "w") as archive:
            archive.writestr("torch-2.13.0.dist-info/METADATA", b"Version: " + odd)
            archive.writestr("torch/lib/libtorch_cpu.dylib", b"x")
        assert refused(text) == "text.whl does not say which release of torch it is"
    encrypted = bytearray(good.read_bytes())
    for mark, at in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):  # the flag of an encrypted record
        encrypted[encrypted.index(mark) + at] |= 1
    text.write_bytes(encrypted)
    assert refused(text) == "text.whl is not a wheel, or is cut short"
    text.write_bytes(
        good.read_bytes().replace(b"METADATA", b"METADAT\xff").replace(b"\x00\x00\x08\x00", b"\x00\x08\x08\x00")
    )
    assert refused(text) == "text.whl is not a wheel, or is cut short"
    assert not cache.exists() or list(cache.iterdir()) == []


def test_a_small_wheel_that_unpacks_to_much_is_refused(tmp_path: Path, cache: Path) -> None:
    """Before it is unpacked: neither the metadata nor the library is believed to be of any size."""
    path = tmp_path / "torch.whl"
    name = f"torch-{RELEASE}.dist-info/METADATA"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, bytes(64 << 20))
        archive.writestr("torch/lib/libtorch_cpu.dylib", b"")
    assert path.stat().st_size < 1 << 17
    tracemalloc.start()
    assert refused(path) == (f"{name} of torch.whl has 67,108,864 bytes; a wheel of torch has at most 1,048,576 there")
    assert tracemalloc.get_traced_memory()[1] < 8 << 20
    tracemalloc.stop()
    stated = library("metal_basic", b"x")
    at = stated.index(struct.pack("<Q", 1), stated.index(b"metal_basic"))
    claims = stated[:at] + struct.pack("<Q", 1 << 40) + stated[at + 8 :]
    assert refused(wheel(path, claims)) == (
        "the section metal_basic of torch/lib/libtorch_cpu.dylib of torch.whl has 1,099,511,627,776 bytes; a wheel of "
        "torch has at most 1,073,741,824 there"
    )
    claims = stated[:at] + struct.pack("<Q", 1 << 20) + stated[at + 8 :]
    assert (
        refused(wheel(path, claims))
        == "torch/lib/libtorch_cpu.dylib of torch.whl ends in the middle of its Metal kernels"
    )
    assert not cache.exists() or list(cache.iterdir()) == []


def test_a_file_that_is_no_archive_is_not_searched_for_one(tmp_path: Path) -> None:
    """An archive may have anything in front; a wheel has nothing there."""
    path = made(tmp_path, metallib({"a": b"BC"}))
    path.write_bytes(b"#!/bin/sh\n" + path.read_bytes())
    assert refused(path) == "torch.whl is not a wheel, or is cut short"


def test_kernels_that_overlap_are_refused(tmp_path: Path) -> None:
    """A small container would be read again and again."""
    content = metallib({"a": b"BC" * 500, **{f"k{i}": b"" for i in range(400)}})
    first = content.index(b"MDSZ") + 6
    size = content[first : first + 8]
    at = first
    while (at := content.find(b"MDSZ", at)) >= 0:
        content = content[: at + 6] + size + content[at + 14 :]
        place = content.index(b"OFFT", at) + 6 + 16
        content = content[:place] + bytes(8) + content[place + 8 :]
        at += 4
    assert refused(made(tmp_path, content)) == (
        "the Metal kernels of torch.whl (section metal_basic) cannot be read: its kernels overlap"
    )


def test_bad_containers_are_one_line(tmp_path: Path) -> None:
    """A container that does not agree with itself is refused, and says where."""
    start = "the Metal kernels of torch.whl (section metal_basic) cannot be read: "
    content = metallib({"a": b"BC" * 40})
    assert refused(made(tmp_path, b"MTLX" + content[4:])) == start + "it is not a Metal library"
    assert (
        refused(made(tmp_path, content[:-1]))
        == start + f"it has {len(content) - 1:,} bytes, and should have {len(content):,}"
    )
    assert refused(made(tmp_path, content[:-1] + b"?")) == start + "the kernel a is damaged: its digest does not match"
    many = content[:88] + struct.pack("<I", 9) + content[92:]
    assert refused(made(tmp_path, many)) == start + "its list of functions ends too early"
    assert refused(made(tmp_path, content.replace(b"MDSZ", b"XXXX"))) == (
        start + "an entry of its list of functions cannot be read"
    )


def test_every_cut_and_changed_byte_is_noticed(tmp_path: Path) -> None:
    """Whatever happens to the header or the list of functions, the answer is a line, never another exception."""
    content = metallib({"a": b"BC" * 8})
    for at in range(0, len(content), 3):
        for bad in (content[:at], content[:at] + b"\xff\xff\xff" + content[at + 3 :]):
            try:
                add_kernels(made(tmp_path, bad), RELEASE)
            except KernelsError as error:
                assert "\n" not in str(error)  # noqa: PT017


def test_what_was_added_stays_until_the_next_is_whole(tmp_path: Path) -> None:
    """A wheel that cannot be read replaces nothing; a container damaged later is told, with the way out."""
    add_kernels(made(tmp_path, metallib({"a": b"BC"})), RELEASE)
    with pytest.raises(KernelsError):
        add_kernels(made(tmp_path, b"bad"), RELEASE)
    kept = open_kernels(RELEASE)
    assert list(kept.kernels) == ["a"]
    kept.path.write_bytes(kept.path.read_bytes()[:-1])
    with pytest.raises(KernelsError, match=r"torch-2\.13\.0\.metallib was damaged \(it has .* add the wheel again"):
        open_kernels(RELEASE)


def test_a_full_disk_is_one_line(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What could not be kept is gone again, and what was there stays."""
    add_kernels(made(tmp_path, metallib({"a": b"BC"})), RELEASE)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(KernelsError) as caught:
        add_kernels(made(tmp_path, metallib({"b": b"BC"})), RELEASE)
    assert str(caught.value) == (
        f"Metal kernels cannot be kept in {cache} (No space left on device): make room there, "
        "or name another place in ANYMPS_CACHE_DIR"
    )
    assert [path.name for path in cache.iterdir()] == ["torch-2.13.0.metallib"]
    assert list(open_kernels(RELEASE).kernels) == ["a"]


class Pip:
    """In the place of pip: `answers` in turn, each a release whose wheel it lays down, or what it says as it fails."""

    def __init__(self) -> None:
        self.answers: list[str | tuple[str, str]] = []
        self.asked: list[list[str]] = []

    def run(self, command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        """As `subprocess.run`."""
        self.asked.append(command)
        answer = self.answers.pop(0)
        if isinstance(answer, tuple):
            return subprocess.CompletedProcess(command, 1, *answer)
        place = Path(command[command.index("-d") + 1]) / "torch-x.whl"
        wheel(place, library("metal_basic", metallib({"a": b"BC"})), answer)
        return subprocess.CompletedProcess(command, 0, "", "")


@pytest.fixture
def pip(monkeypatch: pytest.MonkeyPatch) -> Pip:
    """What commands of the test call."""
    made = Pip()
    monkeypatch.setattr("subprocess.run", made.run)
    return made


def test_pip_downloads(pip: Pip, capsys: pytest.CaptureFixture[str]) -> None:
    """It is asked for the macOS wheel of the installed release; what it says when it fails is the line."""
    pip.answers += [INSTALLED, ("", "warning\nERROR: no matching distribution\n")]
    assert main(["kernels", "add", "--download"]) == 0
    assert capsys.readouterr().out.startswith(f"added 1 kernel of torch {INSTALLED}, ")
    asked = pip.asked[0]
    assert (asked[-1], asked[asked.index("--platform") + 1]) == (f"torch=={INSTALLED}", "macosx_14_0_arm64")
    assert main(["kernels", "add", "--download"]) == 2
    assert capsys.readouterr().err.splitlines()[-1] == (
        f"anymps: pip cannot download torch {INSTALLED} for macosx_14_0_arm64: ERROR: no matching distribution"
    )


def test_a_constraint_forbids_the_release(pip: Pip, capsys: pytest.CaptureFixture[str]) -> None:
    """Its last line names no cause, but one above it does."""
    said = (
        "The conflict is caused by:\n    The user requested torch==2.15.0\n"
        "    The user requested (constraint) torch<=2.14.1\n\nTo fix this you could try to:\n"
    )
    pip.answers.append((said, "ERROR: ResolutionImpossible: for help visit https://pip.pypa.io/\n"))
    assert main(["kernels", "add", "--torch", "2.15.0", "--download"]) == 2
    assert capsys.readouterr().err.splitlines()[-1] == (
        "anymps: pip cannot download torch 2.15.0 for macosx_14_0_arm64: "
        "pip's settings on this machine require torch<=2.14.1 (PIP_CONSTRAINT, pip config list)"
    )


def test_kernels_of_another_release(tmp_path: Path, cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`--torch` names it, in full or not, for a wheel and a download; `list` takes the short form, too."""
    path = made(tmp_path, metallib({"a": b"BC"}), "2.11.3")
    assert main(["kernels", "add", str(path)]) == 2
    assert capsys.readouterr().err == (
        f"anymps: {path} is torch 2.11.3, not {INSTALLED}; to add it, name its release: --torch 2.11.3\n"
    )
    assert main(["kernels", "add", "--torch", "2.12", str(path)]) == 2
    assert main(["kernels", "add", "--torch", "2.11", str(path)]) == 0
    assert capsys.readouterr().out.startswith("added 1 kernel of torch 2.11.3, ")
    assert added_releases() == ["2.11.3"]
    assert main(["kernels", "list", "--torch", "2.11"]) == 0
    assert capsys.readouterr().out == "a\n"


def test_a_short_release_is_downloaded_in_its_newest_form(pip: Pip) -> None:
    """`2.11` is any 2.11 to pip, and the wheel says which it is."""
    pip.answers += ["2.11.3", "2.11.3"]
    assert main(["kernels", "add", "--torch", "2.11", "--download"]) == 0
    assert main(["kernels", "add", "--torch", "2.11.3", "--download"]) == 0
    assert [command[-1] for command in pip.asked] == ["torch==2.11.*", "torch==2.11.3"]
    assert added_releases() == ["2.11.3"]


def test_signature_of_a_kernel() -> None:
    """Buffers with their slots, access and fields, and positions, from the metadata of real bitcode."""
    signature = read_signature(str(llvm().parse_bitcode(bitcode(ADD))))
    assert signature.function == NAME
    out, into, by = signature.buffers
    assert (out.name, out.type, out.slot, out.space, out.written, out.size) == ("out", "float", 0, "device", True, None)
    assert (into.name, into.space, into.written) == ("in", "constant", False)
    assert (by.type, by.size, [(field.name, field.offset, field.bytes) for field in by.fields]) == (
        "By",
        12,
        [("value", 0, 4), ("rest", 4, 8)],
    )
    assert [(field.name, field.length) for field in by.fields[1].fields] == [("__elems", 2)]
    assert [(one.name, one.type, one.attribute) for one in signature.positions] == [
        ("i", "uint", "thread_position_in_grid")
    ]


def test_a_table_of_addresses_is_refused() -> None:
    """Kernels of fused optimizers and of indexing take one; no call of an operator is computed by them."""
    text = str(llvm().parse_bitcode(bitcode(ADD))).replace('!"air.buffer"', '!"air.indirect_buffer"', 1)
    with pytest.raises(KernelsError, match=r"\(it takes a table of addresses, which nothing fills here\)"):
        read_signature(text)


def test_control_characters_in_metadata() -> None:
    """A name from a wheel is printed, so it holds no byte that a terminal obeys."""
    text = str(llvm().parse_bitcode(bitcode(ADD)))
    assert text.count('!"air.arg_name", !"out"')
    signature = read_signature(text.replace('!"air.arg_name", !"out"', '!"air.arg_name", !"o\\00\\1Bt"'))
    assert signature.buffers[0].name == r"o\x00\x1bt"


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Add and list; what is not there is one line."""
    path = made(tmp_path, metallib({NAME: bitcode(ADD), "other_half": bitcode(ADD)}), INSTALLED)
    assert main(["kernels", "list"]) == 2
    assert capsys.readouterr().err == (
        f"anymps: the Metal kernels of torch {INSTALLED} have not been added: run "
        f"`anymps kernels add --torch {INSTALLED} --download`\n"
    )
    assert main(["kernels", "add", str(path)]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith(f"added 2 kernels of torch {INSTALLED}, ")
    assert said[1:] == [f"from {path} (SHA-256 {hashlib.sha256(path.read_bytes()).hexdigest()})"]
    assert main(["kernels", "list", "dense"]) == 0
    assert capsys.readouterr().out == f"{NAME}\n"
    assert main(["kernels", "list", "x*"]) == 2
    assert capsys.readouterr().err == f"anymps: torch {INSTALLED} has no Metal kernel 'x*': it has 2 others\n"
    assert main(["kernels", "list"]) == 0
    assert capsys.readouterr().out == f"{NAME}\nother_half\n"
    assert main(["kernels", "add"]) == 2
    assert main(["kernels"]) == 2
    assert capsys.readouterr().err == (
        "anymps: name a wheel, or let pip get it with --download (anymps kernels add --help)\n"
        "anymps: name what to do: add, list (anymps kernels --help)\n"
    )
