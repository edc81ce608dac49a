"""`anymps convert`: what it changes, what it keeps, what it refuses, and that nothing is lost on the way."""

from __future__ import annotations

import errno
import math
import os
import resource
import struct
import sys
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
import torch

from anymps.checkpoints import ChangedTensor, convert
from anymps.report._text import size
from checkpoint_files import save_on, write_safetensors
from conversions import F64, loaded, read_back, refused, save_sample, status_of

pytestmark = pytest.mark.usefixtures("in_tmp_path")


# --- what is changed, what is kept


@pytest.mark.parametrize("old_format", [False, True])
@pytest.mark.parametrize("mapped", [False, True])
def test_a_training_checkpoint(old_format: bool, mapped: bool) -> None:
    """float64 becomes float32 in models and optimizers; all else in the file is what it was."""
    value = save_sample("in.pt", old_format=old_format)
    source = Path("in.pt").read_bytes()
    report = convert(Path("in.pt"), Path("out.pt"))
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
    assert report.changes[0] == ChangedTensor("model.weight", "float64", "float32")
    assert [change.name for change in report.changes[1:3]] == ["model.bias", "optimizer.state.0.exp_avg"]
    assert (report.tensors, len(report.changes), report.devices, report.remarks) == (8, 6, [], [])
    assert Path("in.pt").read_bytes() == source


def test_weights_in_four_bits_without_their_states() -> None:
    """What bitsandbytes would refuse to load is told, with what to do; a whole checkpoint gives no remark."""
    names = ("weight", "weight.absmax", "weight.quant_map", "weight.quant_state.bitsandbytes__nf4")
    whole = {f"{layer}.{name}": torch.ones(2, dtype=torch.uint8) for layer in ("k", "q", "v") for name in names}
    torch.save(whole, "whole.pt")
    torch.save({name: value for name, value in whole.items() if "k.weight.quant_state" not in name}, "one.pt")
    torch.save({name: value for name, value in whole.items() if "quant_state" not in name}, "none.pt")
    told = "no quant_state: bitsandbytes needs it to load 4 bits; save the model again with save_pretrained"
    remarks = {name: convert(Path(f"{name}.pt"), Path(f"{name}-mps.pt")).remarks for name in ("whole", "one", "none")}
    assert remarks == {
        "whole": [],
        "one": [f"k.weight has {told}"],
        "none": [f"k.weight and 2 other weights have {told}"],
    }


def test_what_torch_can_save() -> None:
    """Everything that torch.load takes from a file that it does not trust comes back with its type and value."""
    noted = torch.ones(2, dtype=F64)
    noted.note = "hello"  # type: ignore[attr-defined]
    value = {
        "coo": torch.eye(2).to_sparse(),
        "parameter": torch.nn.Parameter(torch.ones(2, dtype=F64), requires_grad=False),
        "noted": noted,
        "conjugate": torch.tensor([1 + 2j], dtype=torch.complex128).conj(),
        "meta": torch.empty(3, device="meta"),
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
    assert new["coo"].layout == torch.sparse_coo and torch.equal(new["coo"].to_dense(), torch.eye(2))
    assert torch.equal(new["conjugate"], torch.tensor([1 - 2j], dtype=torch.complex64))
    dtypes = {name: tensor.dtype for name, tensor in new.items() if isinstance(tensor, torch.Tensor)}
    narrow = dict.fromkeys(("coo", "parameter", "noted", "meta", "empty", "scalar"), torch.float32)
    others = {"conjugate": torch.complex64, "float8": torch.float8_e4m3fn, "uint16": torch.uint16}
    assert dtypes == narrow | others
    assert new["empty"].shape == (0, 4) and new["scalar"].item() == 1.5


@pytest.mark.parametrize("device", ["cuda:0", "xpu:1", "mps:0", "mps", "hpu"])
def test_devices(device: str) -> None:
    """A tensor of any device becomes one of the CPU, from where it can be loaded anywhere, and keeps its type."""
    save_on(device, {"half": torch.ones(2, dtype=torch.float16), "double": torch.ones(2, dtype=F64)}, Path("in.pt"))
    report = convert(Path("in.pt"), Path("out.pt"))
    assert (report.devices, report.changes) == ([device], [ChangedTensor("double", "float64", "float32")])
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
    convert(Path("in.pt"), Path("out.pt"))
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
    report = convert(Path("in.pt"), Path("out.pt"))
    assert report.remarks == [
        "a: 2 values beyond float32 became inf",
        "a: 1 whole number above 2**24 changed, float32 cannot hold them",
        "b: 1 value beyond float32 became inf",
    ]
    assert loaded("out.pt")["a"][:3].tolist() == [math.inf, -math.inf, math.inf]


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
    report = convert(Path("in.safetensors"), Path("out.safetensors"))
    new, data = read_back("out.safetensors")
    assert new == {
        "__metadata__": {"format": "pt", "épreuve": "x"},
        "count": {"dtype": "I64", "shape": [], "data_offsets": [0, 8]},
        "wide": {"dtype": "F32", "shape": [2, 2], "data_offsets": [8, 24]},
        "none": {"dtype": "BF16", "shape": [0, 7], "data_offsets": [24, 24]},
    }
    assert struct.unpack("<q4f", data) == (77, 1, 2, 3, math.inf)
    assert report.changes == [ChangedTensor("wide", "float64", "float32")]
    assert report.remarks == ["wide: 1 value beyond float32 became inf"]


def test_torch_to_safetensors() -> None:
    """Named tensors of a torch file become a safetensors file; views are written out, equal tensors once."""
    base = torch.arange(6, dtype=F64)
    value = OrderedDict(a=base.view(2, 3), b=base.view(2, 3), t=base.view(2, 3).t(), half=torch.ones(1).half())
    value["p"] = torch.nn.Parameter(torch.ones(1, dtype=F64))
    value["c"] = torch.tensor([1 + 2j]).conj()
    torch.save(value, "in.pt")
    report = convert(Path("in.pt"), Path("out.safetensors"), to="safetensors")
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
        "c": ("C64", [1], struct.pack("<2f", 1, -2)),
        "half": ("F16", [1], struct.pack("<e", 1)),
    }
    assert report.remarks == ["b is a and is in the file only under that name: safetensors.torch.load_model ties them"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (
            {"w": torch.ones(1), "epoch": 3},
            "in.pt holds more than named tensors (epoch: int), which safetensors cannot: "
            "convert without --to, or save only the state dict",
        ),
        (
            [torch.ones(1)],
            "in.pt holds more than named tensors (all of it: list), which safetensors cannot: "
            "convert without --to, or save only the state dict",
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
    expected = "out.safetensors cannot be written: torch.complex32"
    assert refused("in.pt", "out.safetensors", to="safetensors") == expected


@pytest.mark.parametrize(
    ("header", "data", "text"),
    [
        (b"{" * 100_000, b"", "invalid JSON in header: key must be a string at line 1 column 2"),
        (
            {"a": {"dtype": "U8", "shape": [2], "data_offsets": [0, 1]}},
            b"x",
            "invalid shape, data type, or offset for tensor",
        ),
    ],
)
def test_damaged_safetensors(header: Any, data: bytes, text: str) -> None:
    """A header that does not fit its file is refused with what the library says is wrong."""
    write_safetensors(Path("in.safetensors"), header, data)
    refusal = f"in.safetensors cannot be read: Error while deserializing header: {text}"
    assert refused("in.safetensors", "o.safetensors") == refusal


def test_unknown_safetensors_type() -> None:
    """A type that the table does not know is refused by its name."""
    write_safetensors(Path("in.safetensors"), {"a": {"dtype": "F4", "shape": [2], "data_offsets": [0, 1]}}, b"x")
    expected = "in.safetensors holds tensors of torch.float4_e2m1fn_x2 (a), which MPS cannot hold"
    assert refused("in.safetensors", "o.safetensors") == expected


def test_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """A torch file needs torch alone; a safetensors file names the library to install."""
    monkeypatch.setitem(sys.modules, "safetensors", None)
    monkeypatch.setitem(sys.modules, "safetensors.torch", None)
    write_safetensors(Path("in.safetensors"), {})
    torch.save({"w": torch.ones(2, dtype=F64)}, "in.pt")
    why = "import of safetensors halted; None in sys.modules (pip install safetensors numpy)"
    assert refused("in.safetensors", "o.safetensors") == f"in.safetensors cannot be read: {why}"
    assert refused("in.pt", "o.safetensors", to="safetensors").startswith("o.safetensors cannot be written: import of ")
    convert(Path("in.pt"), Path("out.pt"))


# --- where it is written


def test_the_target_is_safe() -> None:
    """The target is not there, or `force` replaces it; the source is never the target, by whatever name."""
    torch.save({"w": torch.ones(2, dtype=F64)}, "in.pt")
    source = Path("in.pt").read_bytes()
    Path("out.pt").write_bytes(b"older")
    Path("soft.pt").symlink_to("in.pt")
    os.link("in.pt", "hard.pt")
    Path("folder").mkdir()
    assert refused("in.pt") == "out.pt already exists: --force replaces it"
    for name in ("in.pt", "./folder/../in.pt", "soft.pt", "hard.pt"):
        target = Path(name)
        expected = f"{target} is in.pt itself: name another place, the source is never changed"
        assert refused("in.pt", target, force=True) == expected
    assert refused("soft.pt", "in.pt", force=True).startswith("in.pt is soft.pt itself")
    assert refused("in.pt", "folder", force=True) == ("folder cannot be written: it is a directory (name a file in it)")
    assert refused("in.pt", "/dev/full", force=True) == "/dev/full cannot be written: No space left on device"
    assert refused("in.pt", "no/out.pt").startswith("no/out.pt cannot be written: there is no directory /")
    assert refused("nowhere.pt") == "there is no checkpoint nowhere.pt"
    assert refused("folder") == "folder is not a file"
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
        assert text.startswith(f"{target} cannot be written: ") and os.strerror(errno.EFBIG) in text
    assert target.read_bytes() == b"older"


def test_no_permission(monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory that may not be written is one line (root may write everywhere, so the refusal is staged)."""
    torch.save({"w": torch.ones(2)}, "in.pt")

    def denied(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", denied)
        assert refused("in.pt") == "out.pt cannot be written: Permission denied"
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", denied)
        assert refused("in.pt") == "out.pt cannot be written: Permission denied"


def test_interrupted_in_between(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C leaves the older target, and nothing beside it."""
    torch.save({"w": torch.ones(2, dtype=F64)}, "in.pt")
    Path("out.pt").write_bytes(b"older")

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(torch, "save", interrupt)
    with pytest.raises(KeyboardInterrupt):
        convert(Path("in.pt"), Path("out.pt"), force=True)
    assert Path("out.pt").read_bytes() == b"older"
    assert sorted(os.listdir()) == ["in.pt", "out.pt"]


# --- the command


def test_command(capsys: pytest.CaptureFixture[str]) -> None:
    """The command tells what was changed, tensor by tensor, and what the user has to know."""
    shared = torch.full((1000,), 1e300, dtype=F64)
    save_on("cuda:0", {"a": shared, "tied\n": shared, "half": torch.ones(2).half(), "n": 1}, Path("in.pt"))
    assert status_of("in.pt", "out.pt") == 0
    sizes = " -> ".join(size(Path(name).stat().st_size) for name in ("in.pt", "out.pt"))
    assert capsys.readouterr() == (
        f"in.pt -> out.pt (torch): 2 of 3 tensors changed, {sizes}\n"
        "  a       float64 -> float32\n"
        "  tied\\n  float64 -> float32\n"
        "  all tensors: cuda:0 -> cpu\n"
        "  warning: a, tied\\n: 1,000 values beyond float32 became inf\n",
        "",
    )


def test_a_size_that_stays_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    """Before and after are two sizes only where they read differently."""
    torch.save({"w": torch.ones(1 << 18)}, "in.pt")
    assert status_of("in.pt", "out.pt") == 0
    assert capsys.readouterr().out.splitlines()[0].endswith("0 of 1 tensor changed, 1 MiB")


def test_command_mistakes(capsys: pytest.CaptureFixture[str]) -> None:
    """A mistake is one line on stderr and 2."""
    assert status_of("in.pt", "out.pt") == 2
    assert capsys.readouterr() == ("", "anymps: there is no checkpoint in.pt\n")
