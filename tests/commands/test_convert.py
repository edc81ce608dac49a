"""`anymps convert`: what it changes, what it keeps, what it refuses, and that nothing is lost on the way."""

from __future__ import annotations

import argparse
import errno
import json
import math
import os
import pickle
import resource
import shutil
import struct
import zipfile
import zlib
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
import torch

from anymps import CheckpointError
from anymps.checkpoints import Change, convert
from anymps.checkpoints import _file as file_module
from anymps.checkpoints import _place as place_module
from anymps.commands import main
from anymps.report._text import size
from checkpoint_files import evil_pickle, rewrite, save_on, save_pickle, write_safetensors

F64 = torch.float64


@pytest.fixture(autouse=True)
def in_tmp_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are named without their directory, as people do."""
    monkeypatch.chdir(tmp_path)


def refused(source: str | Path, target: str | Path = "out.pt", **options: Any) -> str:
    """The one line that a refused conversion gives; that nothing is left beside the target is checked as well."""
    before = sorted(Path.cwd().rglob("*"))
    with pytest.raises(CheckpointError) as error:
        convert(Path(source), Path(target), **options)
    assert sorted(Path.cwd().rglob("*")) == before
    assert "\n" not in str(error.value)
    return str(error.value)


def loaded(path: str) -> Any:
    """What a torch file holds, read by torch as it reads files that it does not trust."""
    return torch.load(path, weights_only=True)


def read_back(path: str) -> tuple[dict[str, Any], bytes]:
    """Header and data of a safetensors file."""
    content = Path(path).read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    assert length % 8 == 0
    return json.loads(content[8 : 8 + length]), content[8 + length :]


def save_sample(path: str, *, old_format: bool = False) -> dict[str, Any]:
    """A checkpoint of a training, as people write them; returns what was saved."""
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 4).double()
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.randn(2, 3, dtype=F64)).sum().backward()
    optimizer.step()
    value = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3, "rates": [1e-3, None, "x"]}
    torch.save(value, path, _use_new_zipfile_serialization=not old_format)
    return value


# --- what is changed, what is kept


@pytest.mark.parametrize("old_format", [False, True])
@pytest.mark.parametrize("mapped", [False, True])
def test_a_training_checkpoint(old_format: bool, mapped: bool) -> None:
    """float64 becomes float32 in models and optimizers; all else in the file is what it was."""
    value = save_sample("in.pt", old_format=old_format)
    source = Path("in.pt").read_bytes()
    (report,) = convert(Path("in.pt"), Path("out.pt")).files
    new = torch.load("out.pt", weights_only=True, mmap=mapped)
    assert list(new) == ["model", "optimizer", "epoch", "rates"]
    assert (new["epoch"], new["rates"]) == (3, [1e-3, None, "x"])
    assert type(new["model"]) is OrderedDict
    assert new["model"]._metadata == value["model"]._metadata
    torch.testing.assert_close(dict(new["model"]), {k: v.float() for k, v in value["model"].items()}, rtol=0, atol=0)
    assert new["optimizer"]["param_groups"] == value["optimizer"]["param_groups"]
    average = value["optimizer"]["state"][0]["exp_avg"]
    torch.testing.assert_close(new["optimizer"]["state"][0]["exp_avg"], average.float(), rtol=0, atol=0)
    assert new["optimizer"]["state"][0]["step"].dtype == torch.float32
    assert report.changes[0] == Change("model.weight", (4, 3), "float64", "float32", "cpu", "cpu", 48)
    assert [change.name for change in report.changes[1:3]] == ["model.bias", "optimizer.state.0.exp_avg"]
    assert (report.tensors, len(report.changes), report.ties, report.remarks) == (8, 6, [], [])
    assert report.format == ("torch (old format)" if old_format else "torch")
    assert Path("in.pt").read_bytes() == source


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta", "ignore:Validat")
def test_what_torch_can_save() -> None:
    """Everything that torch.load takes from a file that it does not trust comes back with its type and value."""
    sparse = {"coo": torch.eye(2, dtype=F64).to_sparse(), "csr": torch.eye(2, dtype=F64).to_sparse_csr()}
    noted = torch.ones(2, dtype=F64)
    noted.note = "hello"  # type: ignore[attr-defined]
    value = {
        **sparse,
        "parameter": torch.nn.Parameter(torch.ones(2, dtype=F64), requires_grad=False),
        "noted": noted,
        "conjugate": torch.tensor([1 + 2j], dtype=torch.complex128).conj(),
        "meta": torch.empty(3, dtype=F64, device="meta"),
        "float8": torch.ones(3).to(torch.float8_e4m3fn),
        "uint16": torch.ones(3).to(torch.uint16),
        "empty": torch.empty(0, 4, dtype=F64),
        "scalar": torch.tensor(1.5, dtype=F64),
        "plain": [
            {1, 2},
            b"\xff",
            bytearray(b"a"),
            1 + 2j,
            10**30,
            -5,
            True,
            (),
            torch.Size([2]),
            torch.device("cuda", 1),
        ],
    }
    torch.save(value, "in.pt")
    convert(Path("in.pt"), Path("out.pt"))
    new = loaded("out.pt")
    assert new["plain"] == value["plain"]
    assert list(map(type, new["plain"])) == list(map(type, value["plain"]))  # type: ignore[arg-type]
    assert isinstance(new["parameter"], torch.nn.Parameter) and not new["parameter"].requires_grad
    assert new["noted"].note == "hello"
    assert new["meta"].is_meta
    for name in ("coo", "csr"):
        assert new[name].layout == sparse[name].layout
        assert torch.equal(new[name].to_dense(), torch.eye(2))
    assert torch.equal(new["conjugate"], torch.tensor([1 - 2j], dtype=torch.complex64))
    dtypes = {name: tensor.dtype for name, tensor in new.items() if isinstance(tensor, torch.Tensor)}
    narrow = dict.fromkeys(("coo", "csr", "parameter", "noted", "meta", "empty", "scalar"), torch.float32)
    others = {"conjugate": torch.complex64, "float8": torch.float8_e4m3fn, "uint16": torch.uint16}
    assert dtypes == narrow | others
    assert new["empty"].shape == (0, 4) and new["scalar"].item() == 1.5


@pytest.mark.parametrize("device", ["cuda:0", "xpu:1", "mps:0", "mps", "hpu"])
def test_devices(device: str) -> None:
    """A tensor of any device becomes one of the CPU, from where it can be loaded anywhere, and keeps its type."""
    save_on(device, {"half": torch.ones(2, dtype=torch.float16), "double": torch.ones(2, dtype=F64)}, Path("in.pt"))
    (report,) = convert(Path("in.pt"), Path("out.pt")).files
    assert report.changes == [
        Change("half", (2,), "float16", "float16", device, "cpu", 0),
        Change("double", (2,), "float64", "float32", device, "cpu", 8),
    ]
    new = loaded("out.pt")
    assert {name: (tensor.device.type, tensor.dtype) for name, tensor in new.items()} == {
        "half": ("cpu", torch.float16),
        "double": ("cpu", torch.float32),
    }


def test_ties_and_views() -> None:
    """Tensors that share a storage share one afterwards, with their offsets and strides."""
    base = torch.arange(24, dtype=F64)
    value = {"base": base, "tied": base, "view": base.view(4, 6).t()[1:, ::2], "end": base[20:], "own": base.clone()}
    torch.save(value, "in.pt")
    (report,) = convert(Path("in.pt"), Path("out.pt")).files
    assert report.ties == [["base", "tied", "view", "end"]]
    new = loaded("out.pt")
    starts = {name: tensor.untyped_storage().data_ptr() for name, tensor in new.items()}
    assert len(set(starts.values())) == 2 and starts["own"] != starts["base"]
    assert new["tied"] is new["base"]
    for name in value:
        assert torch.equal(new[name], value[name].float())
        assert (new[name].stride(), new[name].storage_offset()) == (value[name].stride(), value[name].storage_offset())
    new["base"][7] = 100
    assert new["view"][0, 0] == new["base"][1] and new["view"][0].tolist() == [1, 13]


def test_losses_are_counted() -> None:
    """Values that float32 cannot hold are counted: those that became inf, and whole numbers that became others."""
    values = [1e300, -1e39, math.inf, math.nan, 2.0**24 + 1, 2.0**24, 0.1, 1e-60]
    torch.save({"a": torch.tensor(values, dtype=F64), "b": torch.tensor([1e300 + 1j], dtype=torch.complex128)}, "in.pt")
    (report,) = convert(Path("in.pt"), Path("out.pt")).files
    assert report.remarks == [
        "a: 2 values beyond float32 became inf",
        "a: 1 whole number above 2**24 changed, float32 cannot hold them",
        "b: 1 value beyond float32 became inf",
    ]
    assert loaded("out.pt")["a"][:3].tolist() == [math.inf, -math.inf, math.inf]


def test_losses_beside_values_that_fit() -> None:
    """A value at the bound is exact; one beyond it is counted, whatever else lies in the same piece of the file."""
    bound = 2.0**24
    for values, remarks in (
        ([bound, -bound, 0.1], []),
        ([bound, math.nan], []),
        ([-(bound + 1), 0.1], ["w: 1 whole number above 2**24 changed, float32 cannot hold them"]),
        ([math.nan, 1e39], ["w: 1 value beyond float32 became inf"]),
    ):
        torch.save({"w": torch.tensor(values, dtype=F64)}, "in.pt")
        assert convert(Path("in.pt"), Path("out.pt"), force=True).files[0].remarks == remarks


def test_the_number_of_threads_is_left_as_it_was() -> None:
    """Pieces are converted by one thread of torch's; the program that asked keeps its own number."""
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        torch.save({"w": torch.ones(2, dtype=F64)}, "in.pt")
        convert(Path("in.pt"), Path("out.pt"))
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)


def test_types_that_are_values_are_kept() -> None:
    """A float64 that is a setting and no tensor stays, and is pointed at."""
    torch.save({"config": {"dtype": F64}}, "in.pt")
    (report,) = convert(Path("in.pt"), Path("out.pt")).files
    assert loaded("out.pt") == {"config": {"dtype": F64}}
    assert report.remarks == ["config.dtype is the type float64 itself and was kept: mps refuses it"]


def test_text_of_python_2() -> None:
    """A byte string of Python 2 is read as text, as torch.load does."""
    save_pickle(b"\x80\x02U\x02\xc3\xa9.", Path("in.pt"))
    convert(Path("in.pt"), Path("out.pt"))
    assert loaded("out.pt") == "é"


def test_storages_start_aligned() -> None:
    """Each storage starts at a multiple of 64 bytes, as torch.save lays them, however long the names are."""
    torch.save({f"w{index}": torch.ones(index + 1, dtype=F64) for index in range(12)}, "in.pt")
    convert(Path("in.pt"), Path("out.pt"))
    reader = torch._C.PyTorchFileReader("out.pt")
    assert {reader.get_record_offset(f"data/{index}") % 64 for index in range(12)} == {0}


# --- safetensors


def test_safetensors() -> None:
    """A safetensors file is converted tensor by tensor; its metadata is kept, large elements go first."""
    header = {
        "__metadata__": {"format": "pt", "épreuve": "x"},
        "wide": {"dtype": "F64", "shape": [2, 2], "data_offsets": [0, 32]},
        "count": {"dtype": "I64", "shape": [], "data_offsets": [32, 40]},
        "none": {"dtype": "BF16", "shape": [0, 7], "data_offsets": [40, 40]},
    }
    write_safetensors(Path("in.safetensors"), header, struct.pack("<4dq", 1, 2, 3, 1e300, 77))
    (report,) = convert(Path("in.safetensors"), Path("out.safetensors")).files
    new, data = read_back("out.safetensors")
    assert new == {
        "__metadata__": {"format": "pt", "épreuve": "x"},
        "count": {"dtype": "I64", "shape": [], "data_offsets": [0, 8]},
        "wide": {"dtype": "F32", "shape": [2, 2], "data_offsets": [8, 24]},
        "none": {"dtype": "BF16", "shape": [0, 7], "data_offsets": [24, 24]},
    }
    assert struct.unpack("<q4f", data) == (77, 1, 2, 3, math.inf)
    assert report.changes == [Change("wide", (2, 2), "float64", "float32", "cpu", "cpu", 16)]
    assert report.remarks == ["wide: 1 value beyond float32 became inf"]


def test_torch_to_safetensors() -> None:
    """Named tensors of a torch file become a safetensors file; views are written out, equal tensors once."""
    base = torch.arange(6, dtype=F64)
    value = OrderedDict(a=base.view(2, 3), b=base.view(2, 3), t=base.view(2, 3).t(), half=torch.ones(1).half())
    value["p"] = torch.nn.Parameter(torch.ones(1, dtype=F64))
    torch.save(value, "in.pt")
    (report,) = convert(Path("in.pt"), Path("out.safetensors"), to="safetensors").files
    header, data = read_back("out.safetensors")
    assert header["__metadata__"] == {"format": "pt", "b": "a"}
    tensors = {
        name: (told["dtype"], told["shape"], data[slice(*told["data_offsets"])])
        for name, told in header.items()
        if name != "__metadata__"
    }
    assert tensors == {
        "a": ("F32", [2, 3], struct.pack("<6f", *range(6))),
        "t": ("F32", [3, 2], struct.pack("<6f", 0, 3, 1, 4, 2, 5)),
        "p": ("F32", [1], struct.pack("<f", 1)),
        "half": ("F16", [1], struct.pack("<e", 1)),
    }
    assert report.remarks == [
        "b is a and stands in the file under that name alone: safetensors.torch.load_model ties them"
    ]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (
            {"w": torch.ones(1), "epoch": 3},
            "in.pt holds more than named tensors (epoch: int), which safetensors cannot: "
            "convert without --to, or save the state dict alone",
        ),
        ([torch.ones(1)], "in.pt is not a dict of tensors, which is all that safetensors can hold: leave out --to"),
        (
            {"c": torch.ones(1, dtype=torch.complex64).conj()},
            "in.pt: c is a lazily conjugated view: save it after resolve_conj()",
        ),
    ],
)
def test_what_safetensors_cannot_hold(value: object, text: str) -> None:
    """What the other format has no place for is not dropped in silence."""
    torch.save(value, "in.pt")
    assert refused("in.pt", "out.safetensors", to="safetensors") == text


@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
def test_types_that_safetensors_does_not_have() -> None:
    """A type without a code is refused by its name."""
    torch.save({"c": torch.zeros(1, dtype=torch.complex32)}, "in.pt")
    expected = "in.pt: safetensors has no type complex32 (c)"
    assert refused("in.pt", "out.safetensors", to="safetensors") == expected


@pytest.mark.parametrize(
    ("header", "data", "text"),
    [
        (b"{", b"", "its JSON cannot be read"),
        (b"{" * 100_000, b"", "its JSON cannot be read"),
        (b'{"a":1', b"", "its JSON cannot be read"),
        (
            b'{"a":{"dtype":"U8","shape":[],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[],"data_offsets":[0,1]}}',
            b"x",
            "the name a stands in it twice",
        ),
        ({"a": 1}, b"", "the entry of a is not whole"),
        ({"a": {"dtype": "U8", "shape": [True], "data_offsets": [0, 1]}}, b"x", "the entry of a is not whole"),
        ({"a": {"dtype": "U8", "shape": [-1], "data_offsets": [0, 1]}}, b"x", "the entry of a is not whole"),
        ({"a": {"dtype": "U8", "shape": [2], "data_offsets": [0, 1]}}, b"x", "a has 1 bytes, its shape needs 2"),
        ({"a": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}}, b"", "it has 68 bytes, its header tells of 69"),
        (
            {"a": {"dtype": "U8", "shape": [1], "data_offsets": [1, 2]}},
            b"xx",
            "the bytes of a do not follow those before",
        ),
        (
            {
                "a": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]},
                "b\n": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]},
            },
            b"x",
            "the bytes of b\\n do not follow those before",
        ),
        ({"__metadata__": {"a": 1}}, b"", "its metadata is not text"),
    ],
)
def test_damaged_safetensors(header: Any, data: bytes, text: str) -> None:
    """A header that does not fit its file is refused with what is wrong."""
    write_safetensors(Path("in.safetensors"), header, data)
    assert refused("in.safetensors", "o.safetensors") == f"in.safetensors is damaged or cut short: {text}"


def test_unknown_safetensors_type() -> None:
    """A type that the table does not know is refused by its name."""
    write_safetensors(Path("in.safetensors"), {"a": {"dtype": "F4", "shape": [2], "data_offsets": [0, 1]}}, b"x")
    expected = "in.safetensors: a is of type F4, which mps cannot hold: convert it first"
    assert refused("in.safetensors", "o.safetensors") == expected


def test_a_name_that_is_no_text() -> None:
    """Half a character, which JSON can spell and UTF-8 cannot, is refused."""
    write_safetensors(Path("in.safetensors"), b'{"\\ud800":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}', b"x")
    expected = "a name holds \\ud800, which is no text that safetensors can hold"
    assert refused("in.safetensors", "o.safetensors") == expected


# --- files that are not whole, or not honest


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
        f"in.pt names {os.system.__module__}.system, which only running code from the file could restore: "
        "where it was made, save the state dict and plain values alone"
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
    assert "which only running code from the file could restore" in refused("in.pt")


def test_a_class_is_named() -> None:
    """A checkpoint with a class of its own is refused by the name of the class."""
    torch.save({"args": argparse.Namespace(lr=1)}, "in.pt")
    assert refused("in.pt").startswith("in.pt names argparse.Namespace, which only running code from the file could")


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
        (b"\x80\x02K\x01Q.", "a reference to something that is no storage"),
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
        (b"hello, world", "in.pt is neither a safetensors file nor one of torch.save, or damaged at its start"),
        (pickle.dumps([1]), "in.pt is neither a safetensors file nor one of torch.save, or damaged at its start"),
    ],
)
def test_no_checkpoints(content: bytes, text: str) -> None:
    """Other files are told apart by their first bytes."""
    Path("in.pt").write_bytes(content)
    assert refused("in.pt") == text


# --- where it is written


def test_the_target_is_safe() -> None:
    """The target is not there, or `force` replaces it; the source is never the target, by whatever name."""
    torch.save({"w": torch.ones(2, dtype=F64)}, "in.pt")
    source = Path("in.pt").read_bytes()
    Path("out.pt").write_bytes(b"older")
    Path("soft.pt").symlink_to("in.pt")
    os.link("in.pt", "hard.pt")
    Path("folder").mkdir()
    assert refused("in.pt") == "out.pt is there already: --force replaces it"
    for name in ("in.pt", "./folder/../in.pt", "soft.pt", "hard.pt"):
        target = Path(name)
        expected = f"{target} is in.pt itself: name another place, the source is never changed"
        assert refused("in.pt", target, force=True) == expected
    assert refused("soft.pt", "in.pt", force=True).startswith("in.pt is soft.pt itself")
    assert refused("in.pt", "folder", force=True) == "folder is not a file, and in.pt becomes one: name another place"
    assert refused("in.pt", "/dev/full", force=True).startswith("/dev/full is not a file")
    assert refused("in.pt", "no/out.pt") == "no/out.pt cannot be written: there is no directory no"
    assert refused("nowhere.pt") == "there is no checkpoint nowhere.pt"
    assert Path("out.pt").read_bytes() == b"older"
    assert Path("in.pt").read_bytes() == source
    convert(Path("in.pt"), Path("out.pt"), force=True)
    assert loaded("out.pt")["w"].dtype == torch.float32


def test_a_link_at_the_target_is_replaced_itself() -> None:
    """With `force`, what a link points to is not touched."""
    torch.save({"w": torch.ones(2)}, "in.pt")
    Path("other").write_bytes(b"other")
    Path("out.pt").symlink_to("other")
    convert(Path("in.pt"), Path("out.pt"), force=True)
    assert Path("other").read_bytes() == b"other"
    assert not Path("out.pt").is_symlink()


def test_names_promise_a_format() -> None:
    """A file is not given the name of the other format."""
    torch.save({"w": torch.ones(2)}, "in.pt")
    write_safetensors(Path("in.safetensors"), {})
    expected = "o.safetensors would be a file of torch.save: name it .pt, or add --to safetensors"
    assert refused("in.pt", "o.safetensors") == expected
    assert refused("in.safetensors", "o.pt") == "o.pt would be a safetensors file: name it o.safetensors"
    assert refused("in.pt", "o.pt", to="safetensors") == "o.pt would be a safetensors file: name it o.safetensors"


@pytest.mark.parametrize("kind", ["in.pt", "in.safetensors"])
def test_a_full_disk(kind: str) -> None:
    """When no more can be written, the older target is what it was, and nothing is left beside it."""
    if kind == "in.pt":
        torch.save({"w": torch.ones(500_000, dtype=F64)}, kind)
    else:
        told = {"w": {"dtype": "F64", "shape": [500_000], "data_offsets": [0, 4_000_000]}}
        write_safetensors(Path(kind), told, bytes(4_000_000))
    target = Path(f"out{Path(kind).suffix}")
    target.write_bytes(b"older")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    for limit in (0, 100, 70_000, 1_999_999):
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
        try:
            text = refused(kind, target, force=True)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert text == f"{target} cannot be written: {os.strerror(errno.EFBIG)}"
    assert target.read_bytes() == b"older"


def test_no_permission(monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory that may not be written is one line (root may write everywhere, so the refusal is staged)."""
    torch.save({"w": torch.ones(2)}, "in.pt")

    def denied(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    with monkeypatch.context() as patched:
        patched.setattr(place_module.os, "replace", denied)
        assert refused("in.pt") == "out.pt cannot be written: Permission denied"
    with monkeypatch.context() as patched:
        patched.setattr(place_module.os, "fsync", denied)
        assert refused("in.pt") == "out.pt cannot be written: Permission denied"


def test_interrupted_in_between(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C leaves the older target, and nothing beside it."""
    torch.save({"w": torch.ones(2, dtype=F64)}, "in.pt")
    Path("out.pt").write_bytes(b"older")

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(file_module, "write_torch", interrupt)
    with pytest.raises(KeyboardInterrupt):
        convert(Path("in.pt"), Path("out.pt"), force=True)
    assert Path("out.pt").read_bytes() == b"older"
    assert sorted(os.listdir()) == ["in.pt", "out.pt"]


# --- directories and indices


def make_folder(top: Path, *, style: str = "torch") -> None:
    """A model in two shards with an index, its settings, and what a trainer leaves beside it."""
    (top / "deep").mkdir(parents=True)
    stem, suffix = ("pytorch_model", "bin") if style == "torch" else ("model", "safetensors")
    weights = {}
    for number, names in ((1, ("a", "b")), (2, ("c",))):
        shard = f"{stem}-0000{number}-of-00002.{suffix}"
        weights |= dict.fromkeys(names, shard)
        if style == "torch":
            torch.save({name: torch.full((4,), number, dtype=F64) for name in names}, top / shard)
        else:
            told = {
                name: {"dtype": "F64", "shape": [4], "data_offsets": [32 * place, 32 * place + 32]}
                for place, name in enumerate(names)
            }
            write_safetensors(top / shard, told, struct.pack("<4d", *[number] * 4) * len(names))
    index = {"metadata": {"total_size": 96, "kept": 1}, "weight_map": weights}
    (top / f"{stem}.{suffix}.index.json").write_text(json.dumps(index))
    (top / "config.json").write_text('{"dtype": "float64"}')
    torch.save({"args": argparse.Namespace()}, top / "training_args.bin")
    torch.save({"step": 1, "w": torch.ones(2, dtype=F64)}, top / "deep" / "optimizer.pt")


@pytest.mark.parametrize("style", ["torch", "safetensors"])
def test_a_directory(style: str) -> None:
    """A directory becomes a directory: shards converted, the index with the new size, other files as they are."""
    make_folder(Path("in"), style=style)
    report = convert(Path("in"), Path("out"))
    names = {path.relative_to("in") for path in Path("in").rglob("*")}
    assert {path.relative_to("out") for path in Path("out").rglob("*")} == names
    (index,) = Path("out").glob("*.index.json")
    old = json.loads((Path("in") / index.name).read_text())
    assert json.loads(index.read_text()) == {**old, "metadata": {"total_size": 48, "kept": 1}}
    if style == "torch":
        assert loaded("out/pytorch_model-00002-of-00002.bin")["c"].tolist() == [2.0] * 4
    else:
        header, data = read_back("out/model-00002-of-00002.safetensors")
        assert (header["c"]["dtype"], data) == ("F32", struct.pack("<4f", 2, 2, 2, 2))
    assert loaded("out/deep/optimizer.pt")["w"].dtype == torch.float32
    assert Path("out/training_args.bin").read_bytes() == Path("in/training_args.bin").read_bytes()
    assert report.copied == ["config.json", "training_args.bin"]
    assert len(report.files) == 3
    assert report.remarks == [
        'config.json asks for float64, and from_pretrained would make it again: set its dtype to "float32"',
        "in/training_args.bin names argparse.Namespace, which only running code from the file could restore: "
        "where it was made, save the state dict and plain values alone; it was copied unchanged",
    ]


def test_a_directory_to_safetensors() -> None:
    """Shards and index get the names that libraries look for; what holds more than tensors stays a torch file."""
    make_folder(Path("in"))
    report = convert(Path("in"), Path("out"), to="safetensors")
    assert sorted(path.relative_to("out").as_posix() for path in Path("out").rglob("*")) == [
        "config.json",
        "deep",
        "deep/optimizer.pt",
        "model-00001-of-00002.safetensors",
        "model-00002-of-00002.safetensors",
        "model.safetensors.index.json",
        "training_args.bin",
    ]
    index = json.loads(Path("out/model.safetensors.index.json").read_text())
    assert index["weight_map"] == {
        "a": "model-00001-of-00002.safetensors",
        "b": "model-00001-of-00002.safetensors",
        "c": "model-00002-of-00002.safetensors",
    }
    assert report.remarks[-1] == (
        "in/deep/optimizer.pt holds more than named tensors (step: int), which safetensors cannot: "
        "convert without --to, or save the state dict alone; it stays a file of torch.save"
    )


def test_an_index() -> None:
    """An index alone brings its shards, and nothing else."""
    make_folder(Path("in"))
    convert(Path("in/pytorch_model.bin.index.json"), Path("out"))
    assert sorted(os.listdir("out")) == [
        "pytorch_model-00001-of-00002.bin",
        "pytorch_model-00002-of-00002.bin",
        "pytorch_model.bin.index.json",
    ]


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ('{"weight_map": {"a": "gone.bin"}}', "{index} names the shard gone.bin, which is not there"),
        ('{"weight_map": {"a": "../in.pt"}}', "{index} names ../in.pt, which is not a file beside it"),
        ('{"weight_map": {"a": "/etc/passwd"}}', "{index} names /etc/passwd, which is not a file beside it"),
        ('{"weight_map": {"a": ".."}}', "{index} names .., which is not a file beside it"),
        ('{"weight_map": {"a": 1}}', "{index} is not an index of shards: it has no weight_map"),
        ("{}", "{index} is not an index of shards: it has no weight_map"),
        ("[]", "{index} is damaged or cut short: its JSON is no object"),
        (
            '{"weight_map": {"z": "pytorch_model-00001-of-00002.bin"}}',
            "{index} says that z is in pytorch_model-00001-of-00002.bin, where it is not",
        ),
        (
            '{"weight_map": {"a": "pytorch_model-00001-of-00002.bin", "a": "pytorch_model-00002-of-00002.bin"}}',
            "{index} is damaged or cut short: the name a stands in it twice",
        ),
    ],
)
def test_an_index_that_does_not_fit(content: str, text: str) -> None:
    """An index that names what is not there, or what is not its business, is refused; nothing is written."""
    make_folder(Path("in"))
    index = Path("in/pytorch_model.bin.index.json")
    index.write_text(content)
    assert refused("in", "out") == text.format(index=index)
    assert refused(index, "out") == text.format(index=index)


def test_a_directory_is_safe() -> None:
    """A directory replaces one that holds the same names only; it never lies in its source, or around it."""
    make_folder(Path("in"))
    convert(Path("in"), Path("out"))
    assert refused("in", "out") == "out is there already: --force replaces it"
    Path("out/config.json").write_text("older")
    convert(Path("in"), Path("out"), force=True)
    assert Path("out/config.json").read_text() == '{"dtype": "float64"}'
    Path("out/notes.txt").write_text("mine")
    assert refused("in", "out", force=True) == "out holds notes.txt, which would be lost: name another directory"
    inside = "lie one inside the other: name a place outside"
    assert refused("in", "in/out") == f"in/out and in {inside}"
    assert refused("in/deep", "in", force=True) == f"in and in/deep {inside}"
    assert refused("in/pytorch_model.bin.index.json", "in", force=True).startswith("in is in itself")
    Path("soft").symlink_to("in")
    assert refused("soft", "in", force=True).startswith("in is soft itself")
    Path("empty").mkdir()
    assert refused("empty", "o") == "empty holds no checkpoint that can be converted"


def test_a_directory_with_damage() -> None:
    """One damaged shard, or a disk that fills up, and an older directory is what it was."""
    make_folder(Path("in"))
    shutil.copytree("in", "out")
    shard = Path("in/pytorch_model-00002-of-00002.bin")
    shard.write_bytes(shard.read_bytes()[:-30])
    assert refused("in", "out", force=True).startswith(f"{shard} is damaged or cut short")
    assert len(Path("out/pytorch_model-00002-of-00002.bin").read_bytes()) > len(shard.read_bytes())


def test_links_in_a_directory() -> None:
    """Files behind links are read, as caches of downloads have them; links to directories are left out and told of."""
    Path("in").mkdir()
    torch.save({"w": torch.ones(2, dtype=F64)}, "blob")
    Path("in/model.pt").symlink_to("../blob")
    Path("in/loop").symlink_to("../in")
    Path("in/dead").symlink_to("nowhere")
    report = convert(Path("in"), Path("out"))
    assert loaded("out/model.pt")["w"].dtype == torch.float32
    assert report.remarks == [
        "in/loop is a link to a directory and was left out",
        "in/dead is not a file and was left out",
    ]


# --- the command


def status_of(*words: str) -> int:
    """Run the command line in this process; return its exit status."""
    return main(["convert", *words])


def test_command(capsys: pytest.CaptureFixture[str]) -> None:
    """The command tells what was changed, tensor by tensor, and what the user has to know."""
    shared = torch.full((1000,), 1e300, dtype=F64)
    save_on("cuda:0", {"a": shared, "tied\n": shared, "half": torch.ones(2).half(), "n": 1}, Path("in.pt"))
    assert status_of("in.pt", "out.pt") == 0
    sizes = " -> ".join(size(Path(name).stat().st_size) for name in ("in.pt", "out.pt"))
    assert capsys.readouterr() == (
        f"in.pt -> out.pt (torch): 3 of 3 tensors changed, {sizes}\n"
        "  a       float64 -> float32, cuda:0 -> cpu, saves 3.9 KiB\n"
        "  tied\\n  float64 -> float32, cuda:0 -> cpu, saves 3.9 KiB\n"
        "  half    cuda:0 -> cpu\n"
        "  one storage: a, tied\\n\n"
        "  warning: a, tied\\n: 1,000 values beyond float32 became inf\n",
        "",
    )


def test_a_size_that_stays_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    """Before and after are two sizes only where they read differently."""
    torch.save({"w": torch.ones(1 << 18)}, "in.pt")
    assert status_of("in.pt", "out.pt") == 0
    assert capsys.readouterr().out.splitlines()[0].endswith("0 of 1 tensor changed, 1 MiB")


def test_command_json(capsys: pytest.CaptureFixture[str]) -> None:
    """`--json` tells the same as data."""
    torch.save({"w": torch.ones(2, dtype=F64)}, "in.pt")
    assert status_of("in.pt", "out.pt", "--json") == 0
    old, new = Path("in.pt").stat().st_size, Path("out.pt").stat().st_size
    change = {"name": "w", "shape": [2], "old_dtype": "float64", "new_dtype": "float32"}
    file = {"source": "in.pt", "target": "out.pt", "format": "torch", "tensors": 1, "ties": [], "remarks": []}
    assert json.loads(capsys.readouterr().out) == {
        "dry_run": False,
        "files": [
            {
                **file,
                "changes": [{**change, "old_device": "cpu", "new_device": "cpu", "saved": 8}],
                "old_bytes": old,
                "new_bytes": new,
            }
        ],
        "copied": [],
        "remarks": [],
        "totals": {"files": 1, "tensors": 1, "changed": 1, "old_bytes": old, "new_bytes": new},
    }


def test_dry_run(capsys: pytest.CaptureFixture[str]) -> None:
    """A dry run tells the same sizes and writes nothing, of a file and of a directory."""
    make_folder(Path("in"))
    before = sorted(Path.cwd().rglob("*"))
    dry = convert(Path("in"), None, dry_run=True)
    assert sorted(Path.cwd().rglob("*")) == before
    assert status_of("in", "--dry-run") == 0
    assert capsys.readouterr().out.endswith("\ndry run: nothing was written\n")
    assert status_of("in/deep/optimizer.pt", "out.pt", "--dry-run") == 0
    assert sorted(Path.cwd().rglob("*")) == before
    wet = convert(Path("in"), Path("out"))
    assert [file.new_bytes for file in dry.files] == [file.new_bytes for file in wet.files]
    assert [file.new_bytes for file in wet.files] == [Path(file.target or "").stat().st_size for file in wet.files]
    assert dry.copied == wet.copied


def test_command_mistakes(capsys: pytest.CaptureFixture[str]) -> None:
    """A mistake is one line on stderr and 2."""
    assert status_of("in.pt") == 2
    expected = "anymps: name a place to write to, or add --dry-run (anymps convert --help)\n"
    assert capsys.readouterr() == ("", expected)
    assert status_of("in.pt", "out.pt") == 2
    assert capsys.readouterr() == ("", "anymps: there is no checkpoint in.pt\n")
