"""The file of a Mac's answers: what is written is read, and anything else is one line."""

from __future__ import annotations

import base64
import contextlib
import gzip
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import torch

from anymps import UsageError
from anymps.verify import Answers, _answers, read_answers, write_answers
from anymps.verify._form import ITEM_SIZES, SAMPLE, wrong_place
from anymps.verify._kinds import KINDS

from .answering import answers, computed, result

SCHEMA = json.loads((Path(__file__).parents[2] / "docs" / "schema" / "mac-answers-2.json").read_text())


def sample() -> Answers:
    """Answers of several kinds, with each field that there is."""
    sent = computed(result(1.0, float("nan")), {"python": "int", "value": "3"}, inputs="0f")
    refuses = {"does": "refuses", "error": "E", "text": "t"}
    return answers(
        operators={"forward add float32": {"samples": [sent, refuses], "operator": "add"}},
        waits={"item": {"does": "computes", "value": "waits"}},
        faults={"MPS601": {**computed(), "reports": "no"}},
        fallbacks={"fallback svd float32": {"does": "computes", "results": [], "warns": ["w"]}},
    )


def refused(path: Path) -> str:
    """The line with which a file is refused."""
    with pytest.raises(UsageError) as error:
        read_answers(path)
    assert "\n" not in str(error.value)
    return str(error.value).replace(str(path), "FILE")


def packed(path: Path, document: object) -> Path:
    """Any document as a file."""
    path.write_bytes(gzip.compress(json.dumps(document).encode()))
    return path


def changed(change: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    """The sample's document after a change."""
    document = json.loads(json.dumps(sample().document()))
    change(document)
    return dict(document)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    """All of it; the same answers give the same bytes."""
    first, second = tmp_path / "a.json.gz", tmp_path / "b.json.gz"
    write_answers(sample(), first)
    write_answers(read_answers(first), second)
    assert read_answers(first) == sample()
    assert first.read_bytes() == second.read_bytes()


def test_the_schema(tmp_path: Path) -> None:
    """A document is what docs/schema/mac-answers-2.json says, which knows the same kinds and fields as the reader."""
    jsonschema.validate(sample().document(), SCHEMA)
    assert SCHEMA["$defs"]["kind"]["enum"] == list(KINDS)
    assert set(SCHEMA["$defs"]["answer"]["properties"]) == {*SAMPLE, "samples"}


def test_a_file_of_another_kind(tmp_path: Path) -> None:
    """None, a folder, no gzip, no JSON, another document."""
    path = tmp_path / "x.json.gz"
    assert refused(path) == "FILE cannot be read: No such file or directory"
    assert refused(tmp_path) == "FILE cannot be read: Is a directory"
    path.write_text("{}")
    assert refused(path) == "FILE is not a gzip file, or is damaged"
    path.write_bytes(gzip.compress(b"\xff\xfe no text"))
    assert refused(path) == "FILE does not contain valid JSON"
    path.write_bytes(gzip.compress(b"[" * 1_000_000))
    assert refused(path) == "FILE does not contain valid JSON"
    path.write_bytes(gzip.compress(b'{"format": NaN}'))
    assert refused(path) == "FILE does not contain valid JSON"
    assert refused(packed(path, [1])) == "FILE is not a file of a Mac's answers"
    assert refused(packed(path, {"format": "other"})) == "FILE is not a file of a Mac's answers"


def test_a_file_of_another_version(tmp_path: Path) -> None:
    """It says so, whatever else is in it; a version that is not a number is not a file of ours."""
    path = tmp_path / "x.json.gz"
    for version, age in ((1, "an older"), (3, "a newer")):
        other = f"FILE was written by {age} anymps (format version {version}; this one reads 2)"
        assert refused(packed(path, {"format": "anymps-mac-answers", "version": version})) == other
    for version in (True, None, "1", [1]):
        none = "FILE is not a file of a Mac's answers: it has no version"
        assert refused(packed(path, changed(lambda document, v=version: document.update(version=v)))) == none


def test_numbers_that_json_does_not_have(tmp_path: Path) -> None:
    """They are not written: no reader would take the file."""
    path = tmp_path / "x.json.gz"
    with pytest.raises(ValueError, match="JSON"):
        write_answers(answers(waits={"item": {"value": float("nan")}}), path)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_was_damaged(tmp_path: Path) -> None:
    """Half of it, with more behind its end, and with a checksum that no longer fits."""
    path = tmp_path / "x.json.gz"
    write_answers(sample(), path)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    assert refused(path) == "FILE is truncated"
    path.write_bytes(whole + whole)
    assert refused(path) == "FILE is damaged: there is data after its end"
    path.write_bytes(whole[:-6] + bytes([whole[-6] ^ 1]) + whole[-5:])
    assert refused(path) == "FILE is not a gzip file, or is damaged"


def test_a_file_that_unpacks_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No more than the limit is unpacked, and no more than the limit is read."""
    path = tmp_path / "x.json.gz"
    monkeypatch.setattr(_answers, "MOST_UNPACKED", 1 << 20)
    path.write_bytes(gzip.compress(b" " * (50 << 20)))
    assert refused(path) == "FILE is too large: more than 1 MiB when decompressed"
    monkeypatch.setattr(_answers, "MOST_PACKED", 1 << 10)
    assert refused(path) == "FILE is too large: more than 0 MiB"


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda d: d.update(virtual="no"), "virtual"),
        (lambda d: d.update(made=3), "made"),
        (lambda d: d.update(machine=[]), "machine"),
        (lambda d: d["machine"].pop("torch"), "machine.torch"),
        (lambda d: d["machine"].update(chip=True), "machine.chip"),
        (lambda d: d["kinds"].update(waits={"cases": 1}), "kinds.waits"),
        (lambda d: d["kinds"].update(waits={"cases": -1, "note": ""}), "kinds.waits.cases"),
        (lambda d: d["answers"].update({"k" * 50: {}}), "answers." + "k" * 50),
        (lambda d: d["answers"].update(waits=3), "answers.waits"),
        (lambda d: d["answers"]["waits"].update({"c" * 90: 1}), f"answers.waits.{'c' * 80}"),
    ],
)
def test_a_file_of_another_form(change: Callable[[dict[str, Any]], object], problem: str, tmp_path: Path) -> None:
    """Each is refused with its place."""
    assert refused(packed(tmp_path / "x.json.gz", changed(change))) == (
        f"FILE cannot be read: {problem} has not the form of format version 2"
    )


HERE = "answers.waits.c"


def wrong(answer: Any) -> str:
    """Where a document of this one answer is wrong."""
    return wrong_place(changed(lambda document: document.update(answers={"waits": {"c": answer}})))


def tensor(**more: Any) -> dict[str, Any]:
    """An answer with one result."""
    return {"results": [{"dtype": "int8", "shape": [], **more}]}


@pytest.mark.parametrize(
    ("make", "most", "problem"),
    [
        (lambda n: {"text": "x" * n}, 20_000, f"{HERE}.text"),
        (lambda n: tensor(shape=[1] * n), 64, f"{HERE}.results[0]"),
        (lambda n: tensor(strides=[n]), 1 << 48, f"{HERE}.results[0].strides[0]"),
    ],
)
def test_the_largest_and_one_more(make: Any, most: int, problem: str) -> None:
    """Each limit of an answer."""
    assert wrong(make(most)) == ""
    assert wrong(make(most + 1)) == problem


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (3, f"{HERE}"),
        ({"o" * 50: 1}, f"{HERE}.{'o' * 50}"),
        ({"does": None}, f"{HERE}.does"),
        ({"does": []}, f"{HERE}.does"),
        ({"reports": "yes"}, f"{HERE}.reports"),
        ({"warns": [1]}, f"{HERE}.warns[0]"),
        ({"samples": 1}, f"{HERE}.samples"),
        ({"samples": [{"samples": []}]}, f"{HERE}.samples[0].samples"),
        ({"results": [3]}, f"{HERE}.results[0]"),
        ({"results": [{"python": "int"}]}, f"{HERE}.results[0]"),
        ({"results": [{"python": 1, "value": "1"}]}, f"{HERE}.results[0].python"),
        ({"results": [{"dtype": "int8"}]}, f"{HERE}.results[0]"),
        (tensor(odd=1), f"{HERE}.results[0].odd"),
        (tensor(dtype="float99"), f"{HERE}.results[0].dtype"),
        (tensor(shape=None), f"{HERE}.results[0].shape"),
        (tensor(shape=[True]), f"{HERE}.results[0].shape[0]"),
        (tensor(shape=[-1]), f"{HERE}.results[0].shape[0]"),
        (tensor(values=1), f"{HERE}.results[0].values"),
        (tensor(values="?"), f"{HERE}.results[0]"),
        (tensor(values="AAAA"), f"{HERE}.results[0]"),
    ],
)
def test_each_field_has_its_form(answer: Any, problem: str) -> None:
    """Another type, one field too many, one too few."""
    assert wrong(answer) == problem


@pytest.mark.filterwarnings("ignore:ComplexHalf")
@pytest.mark.parametrize("name", ITEM_SIZES)
def test_values_have_the_size_of_their_dtype(name: str) -> None:
    """As many bytes an element as torch has: fewer elements than the shape are kept, not more, and whole ones."""
    size = torch.empty(0, dtype=getattr(torch, name)).element_size()
    assert ITEM_SIZES[name] == size

    def kept(count: int) -> str:
        return wrong(tensor(dtype=name, shape=[2, 2], values=base64.b64encode(bytes(count)).decode()))

    here = f"{HERE}.results[0]"
    assert [kept(0), kept(size), kept(4 * size), kept(5 * size)] == ["", "", "", here]
    assert size == 1 or kept(size + 1) == here


def test_documents_at_random(tmp_path: Path) -> None:
    """One value anywhere replaced by another of any kind: read, or refused in a line; never anything else."""
    chance = random.Random(0)
    strange: list[Any] = [None, True, -1, 1 << 70, 1.5, "", "\x1b[2J", [], {}, [[]], {"a": 1}, "A" * 30_000]
    path = tmp_path / "x.json.gz"
    kept = 0
    for _ in range(400):
        document = changed(lambda d: None)
        node: Any = document
        while True:
            key = chance.choice(list(node) if isinstance(node, dict) else range(len(node)))
            if not isinstance(node[key], (dict, list)) or not node[key] or chance.random() < 0.15:
                break
            node = node[key]
        node[key] = chance.choice(strange)
        packed(path, document)
        with contextlib.suppress(UsageError):
            read_answers(path)
            kept += 1
    assert 0 < kept < 400
