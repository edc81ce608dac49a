"""`anymps convert` of a folder, or of the index of a model in shards."""

from __future__ import annotations

import json
import os
import shutil
import struct
from pathlib import Path

import pytest
import torch

from anymps.checkpoints import convert
from conversions import F64, loaded, make_folder, read_back, refused

pytestmark = pytest.mark.usefixtures("in_tmp_path")


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
        'config.json asks for float64, and from_pretrained would create float64 again: set its dtype to "float32"',
        "in/training_args.bin names argparse.Namespace, which cannot be restored without running code from the file: "
        "save it again with only the state dict and plain values; it was copied unchanged",
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
        "convert without --to, or save only the state dict; it stays a file of torch.save"
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
        ('{"weight_map": {"a": "gone.bin"}}', "{index} names the shard gone.bin, which does not exist"),
        ('{"weight_map": {"a": "../in.pt"}}', "{index} names ../in.pt, which is not a file next to it"),
        ('{"weight_map": {"a": "/etc/passwd"}}', "{index} names /etc/passwd, which is not a file next to it"),
        ('{"weight_map": {"a": ".."}}', "{index} names .., which is not a file next to it"),
        ('{"weight_map": {"a": 1}}', "{index} is not an index of shards: it has no weight_map"),
        ("{}", "{index} is not an index of shards: it has no weight_map"),
        ("[]", "{index} is damaged or cut short: its JSON is not an object"),
        (
            '{"weight_map": {"z": "pytorch_model-00001-of-00002.bin"}}',
            "{index} says that z is in pytorch_model-00001-of-00002.bin, where it is not",
        ),
        (
            '{"weight_map": {"a": "pytorch_model-00001-of-00002.bin", "a": "pytorch_model-00002-of-00002.bin"}}',
            "{index} is damaged or cut short: the name a is in it twice",
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
    assert refused("in", "out") == "out already exists: --force replaces it"
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
