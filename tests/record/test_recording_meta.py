"""What a recording says of its run, as it crosses the border: each fact has its type, and another is damage."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

import anymps
from anymps._errors import RecordingError
from anymps.record import Recording, RecordingBuilder
from anymps.record._meta import EndingFacts, Meta, UnfitError
from anymps.record.format import MOST

TEXT: tuple[tuple[object, ...], tuple[object, ...]] = (("", "x"), (1, None, ["x"], True))
TRUTH: tuple[tuple[object, ...], tuple[object, ...]] = ((True, False), (0, 1, "true", None))
WHOLE: tuple[tuple[object, ...], tuple[object, ...]] = (
    (0, 7, MOST, -MOST),
    (MOST + 1, -MOST - 1, 0.5, "7", True, None),
)
PART = {"name": "gw0", "begin_ns": 0, "complete": True}
LOOK = [5, 8, 1, 0.5, 0.4]
FACTS: dict[str, tuple[tuple[object, ...], tuple[object, ...]]] = {
    "script": TEXT,
    "loop": TEXT,
    "times_of": TEXT,
    "virtual": TRUTH,
    "rounds": TRUTH,
    "threads": WHOLE,
    "steps_seen": WHOLE,
    "allocations_dropped": ((True, 0, 3), (MOST + 1, "3", None)),
    "arguments": (([], ["--lr", "1"]), ("--lr", [1], {"a": "b"})),
    "suite": (
        ({}, {"tests": 3, "expected": [{"file": "a.py", "line": 1, "why": "x"}]}),
        ([], {"tests": "3"}, {"own": 1}),
    ),
    "steps": (([0, 3],), ([], [0], [0, 3, 5], [0, 0.5], [0, "3"], "03", None)),
    "parts": (
        ([], [PART], [PART, {**PART, "card": "cuda:0"}]),
        (PART, ["gw0"], [{**PART, "begin_ns": 0.5}], [{**PART, "complete": 1}], [{**PART, "card": 0}], [{"name": "x"}]),
    ),
    "device_choice": (
        ({}, {"file": "a.py", "line": 2, "chosen": True, "first": 1, "around": "a\nb"}),
        ([], {"line": 0}, {"line": "1"}, {"chosen": 1}, {"file": 3}, {"first": 0}, {"around": 1}),
    ),
    "ending": (
        ({}, {"status": 1, "exception": "ValueError", "place": {"line": 1}}),
        ([], {"status": "1"}, {"exception": 1}, {"place": "a.py"}),
    ),
    "environment": (({}, {"PYTORCH_X": "1"}), ([], {"PYTORCH_X": 1})),
    "wall_seconds": ((0, 0.5, MOST), (-0.1, MOST + 1, True, "1", float("nan"))),
    "core_speed": ((0.5, 99.9), (0.0, 100.0, 1, "1")),
    "compute_speed": ((0.5, 99.9), (0.0, 100.0, 1, "1")),
    "looks": (
        ([], [LOOK], [LOOK, LOOK]),
        (
            {},
            LOOK,
            [LOOK[:4]],
            [[*LOOK, 1.0]],
            [[9, *LOOK[1:]]],
            [[*LOOK[:2], -1, *LOOK[3:]]],
            [[*LOOK[:3], 0.0, *LOOK[4:]]],
            [["1", *LOOK[1:]]],
        ),
    ),
    "real_calls": (({}, {"aten::mul": 1}), ([], {"aten::mul": 0}, {"aten::mul": "1"})),
}


KEYS = tuple(field.name for field in fields(Meta))


def fits(name: str, value: object) -> bool:
    """Whether a recording may say this of its run."""
    try:
        Meta.read({name: value})
    except UnfitError:
        return False
    return True


@pytest.mark.parametrize("name", FACTS)
def test_a_fact_has_its_type(name: str) -> None:
    """What makes sense is read; its nearest neighbours, which make none, are damage."""
    good, bad = FACTS[name]
    assert [value for value in good if not fits(name, value)] == []
    assert [value for value in bad if fits(name, value)] == []


@pytest.mark.parametrize("name", KEYS)
def test_no_fact_may_be_anything(name: str) -> None:
    """Each one refuses something: a check that takes whatever comes is none."""
    odd: tuple[object, ...] = (None, -1, 0.0, float("nan"), "", [None], {"x": None}, True)
    assert not all(fits(name, value) for value in odd)


def test_an_old_recording_reads_the_same() -> None:
    """What another version wrote is passed over, and what it did not write is unknown."""
    old = {"script": "train.py", "ending": {"status": 1, "kind": "raised"}, "hostname": ["a", 1]}
    assert Meta.read(old) == Meta(script="train.py", ending=EndingFacts(1))
    assert Meta.read({}) == Meta()
    with pytest.raises(UnfitError, match="script"):
        Meta.read({**old, "script": 1})
    assert (Meta().virtual, Meta().on_mac, Meta.read({"virtual": False}).on_mac) == (None, False, True)


def noted(**facts: object) -> Recording:
    """A recording of one optimizer."""
    builder = RecordingBuilder()
    builder.note("optimizer", start_ns=0, **facts)
    return builder.close()


def test_an_optimizer_is_typed() -> None:
    """What is not known of its options is empty."""
    (adam,) = noted(name="Adam", tensors=2, on_mps=1, torch=True, fused=["True"], eps=None).optimizers()
    assert (adam.name, adam.tensors, adam.on_mps, adam.torch) == ("Adam", 2, 1, True)
    assert (adam.fused, adam.eps, adam.dtypes) == (("True",), (), ())


@pytest.mark.parametrize("wrong", [{"name": 1}, {"tensors": "2"}, {"fused": "True"}, {"eps": [1e-8]}, {"name": None}])
def test_a_note_of_other_types_is_damage(wrong: dict[str, object]) -> None:
    """What a rule reads of an optimizer is there, and of its type."""
    with pytest.raises(RecordingError, match="a note about an optimizer is invalid"):
        noted(**{"name": "Adam", "tensors": 2, "on_mps": 2, **wrong}).optimizers()


def test_facts_have_one_list() -> None:
    """What is written of a run is a field, and the page of the format names each field."""
    source = Path(anymps.__file__).parent
    texts = [path.read_text() for path in source.rglob("*.py")]
    written = {key for text in texts for key in re.findall(r'(?:set_meta|note_fact)\("(\w+)"', text)}
    facts = (source / "capture/_run_facts.py").read_text().partition("def machine_facts")[2]
    written |= set(re.findall(r'^        (?:\*\*\(\{)?"(\w+)":', facts, re.MULTILINE))
    assert {"ending", "torch_version", "card"} <= written
    assert written - set(KEYS) == set()
    page = (Path(__file__).parents[2] / "docs/architecture/recording-file.md").read_text()
    listed = page.partition("Keys of `meta`")[2]
    assert [key for key in KEYS if f"`{key}`" not in listed] == []
