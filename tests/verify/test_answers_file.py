"""The file of a Mac's answers: what is written is read, and anything else is one line."""

from __future__ import annotations

import contextlib
import gzip
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from anymps import UsageError
from anymps.verify import Answers, _answers, read_answers, write_answers
from anymps.verify._answers import digest
from anymps.verify._form import _FIELDS
from anymps.verify._kinds import KINDS

from .answering import answers, computed, result

SCHEMA = json.loads((Path(__file__).parents[2] / "docs" / "schema" / "mac-answers-1.json").read_text())


def sample() -> Answers:
    """Answers of several kinds, with each field that there is."""
    sent = computed(result(1.0, float("nan")), {"python": "int", "value": "3"}, inputs="0f", shapes=[[2], []])
    return answers(
        operators={
            "forward add float32": {
                "samples": [sent, {"does": "refuses", "error": "E", "text": "t"}],
                "operator": "add",
            }
        },
        waits={"item": {"waits": True, "seconds": 0.2, "queue": 0.15}},
        memory={"four sizes": {"does": "computes", "rows": [["+ 4", 256, 8 << 20]]}},
        surface={"names of torch.mps": {"names": ["Event"]}, "1": {"does": "computes", "value": "1"}},
        faults={"MPS601": {"title": "T", "sure": True, "shows": False}},
        times={
            "aten::relu(float32[4]) -> (float32[4]) pipe": {
                "seconds": 1e-3,
                "spread": 0.1,
                "paged": False,
                "mode": "pipe",
            }
        },
        fallbacks={"fallback svd float32": {"does": "computes", "results": [], "warns": ["w"], "random": True}},
    )


def refused(path: Path) -> str:
    """The line with which a file is refused."""
    with pytest.raises(UsageError) as error:
        read_answers(path)
    assert "\n" not in str(error.value)
    return str(error.value).replace(str(path), "FILE")


def packed(path: Path, document: object) -> Path:
    """Any document as a file; its digest is right if it is a dictionary without one."""
    if isinstance(document, dict) and "digest" not in document:
        document = {**document, "digest": digest(document)}
    path.write_bytes(gzip.compress(json.dumps(document).encode()))
    return path


def changed(change: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    """The sample's document after a change, without a digest."""
    document = json.loads(json.dumps(sample().document()))
    del document["digest"]
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
    """A document is what docs/schema/mac-answers-1.json says, which knows the same kinds and fields as the reader."""
    jsonschema.validate(sample().document(), SCHEMA)
    assert SCHEMA["$defs"]["kind"]["enum"] == list(KINDS)
    assert set(SCHEMA["$defs"]["answer"]["properties"]) == set(_FIELDS)


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


def test_a_newer_file(tmp_path: Path) -> None:
    """It says so, whatever else is in it; a version that is not a number is not a file of ours."""
    path = tmp_path / "x.json.gz"
    newer = "FILE was written by a newer anymps (format version 2; this one reads 1)"
    assert refused(packed(path, {"format": "anymps-mac-answers", "version": 2})) == newer
    other = "FILE is not a file of a Mac's answers: its version is not 1"
    for version in (0, None, "1", [1]):
        assert refused(packed(path, changed(lambda document, v=version: document.update(version=v)))) == other


def test_a_file_that_was_changed(tmp_path: Path) -> None:
    """Its digest no longer fits."""
    document = sample().document()
    document["answers"]["waits"]["item"]["waits"] = False
    assert refused(packed(tmp_path / "x.json.gz", document)) == "FILE is damaged: its digest does not match"


def test_numbers_that_json_does_not_have(tmp_path: Path) -> None:
    """They are not written: no reader would take the file."""
    path = tmp_path / "x.json.gz"
    odd = answers(waits={"item": {"seconds": float("nan")}})
    for refuse in (lambda: write_answers(odd, path), lambda: digest({"seconds": float("inf")})):
        with pytest.raises(ValueError, match="JSON"):
            refuse()
    assert list(tmp_path.iterdir()) == []


def test_a_file_cut_short_or_followed_by_something(tmp_path: Path) -> None:
    """Half of it, and with more behind its end."""
    path = tmp_path / "x.json.gz"
    write_answers(sample(), path)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    assert refused(path) == "FILE is truncated"
    path.write_bytes(whole + whole)
    assert refused(path) == "FILE is damaged: there is data after its end"


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
        (lambda d: d.update(virtual="no"), "virtual is neither true nor false"),
        (lambda d: d.update(machine=[]), "machine is not an object, or is too large"),
        (lambda d: d["machine"].pop("torch"), "machine.torch is not a string, or is too long"),
        (lambda d: d["answers"].update(smells={}), "it has answers of an unknown kind: 'smells'"),
        (lambda d: d["answers"].update(waits=3), "answers.waits is not an object, or is too large"),
        (lambda d: d["answers"]["waits"]["item"].update(waits=1), "answers.waits.item.waits is neither true nor false"),
        (lambda d: d["answers"]["waits"]["item"].update(odd=1),
         "answers.waits.item has an unknown field: 'odd'"),
        (lambda d: d["answers"]["waits"]["item"].update(does="flies"),
         "answers.waits.item.does is not one of computes, refuses, crashes, hangs, unasked"),
        (lambda d: d["answers"]["waits"]["item"].update(seconds="1"), "answers.waits.item.seconds is not a number"),
        (lambda d: d["answers"]["surface"]["1"].update(results=[{"dtype": "float99", "shape": []}]),
         "answers.surface.1.results[0] has an unknown dtype"),
        (lambda d: d["answers"]["surface"]["1"].update(results=[{"dtype": "bool", "shape": [-1]}]),
         "answers.surface.1.results[0].shape is not a size"),
        (lambda d: d["answers"]["surface"]["1"].update(results=[{"dtype": "bool", "shape": [1], "values": "?"}]),
         "answers.surface.1.results[0] has values that are not valid base64"),
        (lambda d: d["answers"]["surface"]["1"].update(results=[{"dtype": "bool", "shape": [1], "values": "AAAA"}]),
         "answers.surface.1.results[0] has values that do not fit its shape"),
        (lambda d: d["answers"]["surface"]["1"].update(samples=[{"samples": 1}]),
         "answers.surface.1.samples[0].samples is not an array, or is too long"),
    ],
)  # fmt: skip
def test_a_file_of_another_form(change: Callable[[dict[str, Any]], object], problem: str, tmp_path: Path) -> None:
    """Each is refused with its place, though its digest is right."""
    assert refused(packed(tmp_path / "x.json.gz", changed(change))) == f"FILE cannot be read: {problem}"


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
