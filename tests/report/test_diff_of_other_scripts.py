"""Recordings of `train.py` and `train_fixed.py`: a finding in both is one, and each form says why."""

from __future__ import annotations

import pytest

from anymps.findings import Story, find
from anymps.record import Direction, Fate, Phase, Recording, RecordingBuilder, Wait
from anymps.report import Diff, compare, diff_document
from anymps.report import rendered as as_form
from recordings import META

FOLDER = "/home/me/project"
SAID = "named differently: findings were matched by rule, function, line of code and operator, not by file"
READ = "running += loss.item()"


def run(script: str, *reads: tuple[str, int, str, str], directory: str = FOLDER) -> Recording:
    """Ten steps in which each line, given as file, number, function and text, reads a number from mps."""
    builder = RecordingBuilder(meta={**META, "script": script, "directory": directory})
    sites = [builder.site(*read) for read in reads]
    for step in range(10):
        for number, site in enumerate(sites):
            builder.entry(
                "aten::_local_scalar_dense", start_ns=step * 1_000_000 + number * 50_000, duration_ns=25_000,
                fate=Fate.NATIVE, phase=Phase.LOSS_READ, site=site, wait=Wait.ITEM, direction=Direction.MPS_TO_CPU,
                moved_bytes=4,
            )  # fmt: skip
        builder.end_step((step + 1) * 1_000_000)
    return builder.close()


def diff(before: Recording, after: Recording) -> Diff:
    """The comparison with the findings of both."""
    return compare(Story.of(before), Story.of(after), find(before), find(after))


def counts(found: Diff) -> tuple[int, int, int]:
    """How many are gone, new, and in both."""
    return len(found.gone), len(found.new), len(found.changed) + found.same


def test_a_copy_of_a_script() -> None:
    """A line that has moved in the copy is the same; one that was changed there is another."""
    before = run(
        "train.py", (f"{FOLDER}/train.py", 36, "main", READ), (f"{FOLDER}/train.py", 40, "main", "print(loss)")
    )
    after = run(
        "train_fixed.py",
        (f"{FOLDER}/train_fixed.py", 39, "main", f"    {READ}"),
        (f"{FOLDER}/train_fixed.py", 43, "main", "log(loss)"),
    )
    found = diff(before, after)
    assert found.other_script
    assert counts(found) == (1, 1, 1)
    assert (found.gone[0].site.source, found.new[0].site.source) == ("print(loss)", "log(loss)")


def test_another_function_or_an_unknown_line() -> None:
    """The function counts, and the number of a line says nothing about another file."""
    one, other = (f"{FOLDER}/{name}.py" for name in ("train", "train_fixed"))
    found = diff(run(one, (one, 36, "main", READ)), run(other, (other, 36, "evaluate", READ)))
    assert counts(found) == (1, 1, 0)
    found = diff(run(one, (one, 36, "main", "")), run(other, (other, 36, "main", "")))
    assert counts(found) == (1, 1, 0)


def test_a_shared_file_is_matched_first() -> None:
    """The same line in a file that both scripts use is that file's, whatever comes first."""
    one, other, shared = (f"{FOLDER}/{name}.py" for name in ("train", "train_fixed", "utils"))
    before = run(one, (one, 36, "main", READ), (shared, 5, "main", READ))
    after = run(other, (shared, 5, "main", READ))
    found = diff(before, after)
    assert counts(found) == (1, 0, 1)
    assert found.gone[0].site.file == one


@pytest.mark.parametrize(
    ("first", "script"),
    [("train.py", name) for name in ("train.py", "./train.py", f"{FOLDER}/train.py", "../project/train.py")]
    + [("", "train.py")],
)
def test_the_same_script_or_an_unknown_one(first: str, script: str) -> None:
    """However it is written, it is one script, and then the file of a finding counts; a program may name none."""
    before = run(first, (f"{FOLDER}/train.py", 36, "main", READ))
    found = diff(before, run(script, (f"{FOLDER}/models/net.py", 36, "main", READ)))
    assert not found.other_script
    assert counts(found) == (1, 1, 0)
    assert SAID not in "".join(as_form(diff_document(found), "markdown"))


def test_what_each_form_says() -> None:
    """Text, page and Markdown say how findings were matched."""
    one, other = (f"{FOLDER}/{name}.py" for name in ("train", "train_fixed"))
    found = diff(run(one, (one, 36, "main", READ)), run(other, (other, 36, "main", READ)))
    for form in ("terminal", "html", "markdown"):
        assert SAID in " ".join("".join(as_form(diff_document(found), form)).split())
    assert (found.other_script, found.same) == (True, 1)
