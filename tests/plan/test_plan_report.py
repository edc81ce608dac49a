"""A plan as text, JSON and page, whole, from a hand-made one; the page in a browser: tests/integration.

`PYTHONPATH=tests python tests/plan/test_plan_report.py` writes the expected outputs anew.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import replace
from pathlib import Path

import pytest

from anymps.findings import kept_graphs
from anymps.plan import NoLarger
from anymps.record import Site
from anymps.report import plan_document, plan_json, rendered
from anymps.report.plan._fix_words import fixes
from anymps.report.plan._words import ended
from plans import EVIL, evil, plan_page, planned, render_plan, resting
from report.test_report_forms import comparable, validator
from report.test_report_html import Page

EXPECTED = Path(__file__).parents[1] / "data" / "reports"
SHOWN = EVIL.replace("\u202e", "\\u202e").replace("\n", "\\n")
PLANS = {"planned": planned, "evil": evil, "resting": resting}


def expected() -> dict[str, str]:
    """The whole outputs by file name: text of 80 columns, JSON, the page without its style."""
    return {
        "plan-short.txt": render_plan(planned(), width=80),
        "plan.txt": render_plan(planned(), width=80, verbose=True),
        "plan.json": plan_json(planned()),
        "plan.markdown": "".join(rendered(plan_document(planned()), "markdown")),
        "plan.html": comparable("html", plan_page(planned())),
    }


@pytest.mark.parametrize("name", ["plan-short.txt", "plan.txt", "plan.json", "plan.html", "plan.markdown"])
def test_a_plan_in_this_form_is_this(name: str) -> None:
    """Every section, whole."""
    assert expected()[name] == (EXPECTED / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", PLANS)
def test_json_fits_the_published_schema(name: str) -> None:
    """JSON has the fields of docs/schema/plan-1.json and no others."""
    validator("plan-1.json").validate(json.loads(plan_json(PLANS[name]())))


@pytest.mark.parametrize("name", PLANS)
@pytest.mark.parametrize("width", [60, 80, 120])
def test_no_line_is_wider_than_the_terminal(name: str, width: int) -> None:
    """Tables leave columns out, and wrap cells."""
    text = render_plan(PLANS[name](), width=width, verbose=True)
    assert max(map(len, text.splitlines())) <= width


def test_a_plan_for_one_mac_begins_with_its_verdict() -> None:
    """What happens there, then torch's own text."""
    lines = render_plan(planned("M1 8GB")).splitlines()
    assert lines[:2] == ["On M1 8GB: fails.", "MPS backend out of memory (here)"]


def test_colour_adds_control_sequences_only() -> None:
    """Without them the text is the same."""
    coloured = render_plan(planned(), color=True, verbose=True)
    assert "\x1b[" in coloured
    stripped = "".join(f"{line.rstrip()}\n" for line in re.sub(r"\x1b\[[\d;]*m", "", coloured).splitlines())
    assert stripped == render_plan(planned(), verbose=True)


def test_the_first_fixes_say_what_they_would_do_here() -> None:
    """Half the batch with its number, the length of a sequence, the share of activations; the limit comes last."""
    told = fixes(planned("M1 8GB"))
    assert [fix.begin for fix in told] == [True, False, False, False, False, False]
    assert [fix.here for fix in told] == [
        "Batch 4 needs 5 GiB instead of 10.9 GiB.",
        "They are 512 tokens long.",
        "Nothing grows from step to step.",
        "Activations are 56 % of the peak.",
        "",
        "",
    ]
    assert told[-1].text == (
        "As a last resort, set PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0: it lifts torch's limit, not the memory's, and can "
        "take the whole system down."
    )


def test_half_the_batch_that_needs_as_much_is_not_told_in_numbers() -> None:
    """Two sizes that read the same say nothing."""
    plan = planned("M1 8GB")
    first = replace(plan.fixes[0], peak=plan.base.story.peak_reserved - 1, applies=False)
    told = fixes(replace(plan, fixes=(first, *plan.fixes[1:])))
    assert told[0].here == "Little of the peak grows with the batch."


def test_nothing_from_the_script_is_markup_on_the_page() -> None:
    """Paths, modules, messages and problems are shown as they are and make no element or attribute."""
    shown = Page(plan_page(evil()))
    shown.check_harmless(Page(plan_page(planned())), "strong")
    assert shown.text.count(SHOWN) > 10


@pytest.mark.parametrize("name", PLANS)
def test_the_page_has_its_landmarks_and_asks_for_nothing(name: str) -> None:
    """As that of a run; a plan that fits has fewer drawings."""
    shown = Page(plan_page(PLANS[name]()))
    shown.check_landmarks()
    assert len(shown.drawings) == (1 if name == "resting" else 2)


def test_a_plan_that_fits_needs_no_fixes() -> None:
    """Neither text nor page tell what to do, and the unknown batch is explained."""
    for shown in (render_plan(resting(), width=120), Page(plan_page(resting())).text):
        assert "What to change first" not in shown
        assert "The largest batch is unknown, because no data loader gives batches." in " ".join(shown.split())


@pytest.mark.parametrize(
    ("why", "problem", "sentence"),
    [
        (
            NoLarger.OTHER_COURSE,
            "",
            "The largest batch is unknown: with twice the batch the script runs differently, for example because an "
            "epoch ends sooner.",
        ),
        (
            NoLarger.STOPPED,
            "RuntimeError: shape '[8, 4]' is invalid for input of size 64 at train.py:9",
            "The largest batch is unknown, because with twice the batch the script stops: RuntimeError: shape '[8, 4]' "
            "is invalid for input of size 64 at train.py:9. Its batch may be fixed elsewhere.",
        ),
        (
            NoLarger.LATE,
            "",
            "The largest batch is unknown, because the measurement with twice the batch took longer than --seconds.",
        ),
        (NoLarger.NOT_MEASURED, "", "The largest batch was not measured (--no-larger)."),
    ],
)
def test_why_the_largest_batch_is_unknown(why: NoLarger, problem: str, sentence: str) -> None:
    """Each reason is one sentence, in the text and on the page."""
    plan = replace(resting(), no_larger=why, problem=problem)
    for shown in (render_plan(plan, width=120), Page(plan_page(plan)).text):
        assert sentence in " ".join(shown.split())


def test_several_macs_stand_side_by_side() -> None:
    """Each has its verdict, its row and torch's text; the changes are told for each."""
    plan = planned("M1 8GB", "M3 Pro 18GB")
    assert [row.outcome.mac.name for row in plan.rows] == ["M1 8GB", "M3 Pro 18GB"]
    lines = render_plan(plan, width=120).splitlines()
    assert lines[:2] == ["On M1 8GB: fails. On M3 Pro 18GB: fits.", "M1 8GB: MPS backend out of memory (here)"]
    assert "On M1 8GB: fails. On M3 Pro 18GB: fits." in Page(plan_page(plan)).text
    document = json.loads(plan_json(plan))
    validator("plan-1.json").validate(document)
    assert (document["asked"], document["asked_about"]) == (["M1 8GB", "M3 Pro 18GB"], None)
    assert [mac["verdict"] for mac in document["macs"]] == ["fails", "fits"]


def test_a_script_that_goes_on_after_memory_ran_out_is_told_as_that() -> None:
    """In the headline and in the row; where nobody asked for a Mac, how to see it."""
    plan = planned("M1 8GB")
    within = replace(plan.base, steps=3, last_batch=4)
    plan = replace(plan, rows=(replace(plan.rows[0], recovery=within),))
    shown = render_plan(plan, width=120, verbose=True)
    assert shown.startswith("On M1 8GB: memory runs out, and the script continues with batch 4.\n")
    assert "fails in step 1, forward, then continues with batch 4" in shown
    assert json.loads(plan_json(plan))["macs"][0]["recovery"] == {"steps": 3, "batch": 4}
    every = planned()
    every = replace(every, base=replace(every.base, retries=True))
    sentence = "The script's code handles running out of memory: --mac shows what it does then."
    assert sentence in " ".join(render_plan(every, width=120, verbose=True).split())


def test_a_measurement_that_was_ended_says_so() -> None:
    """The summary says that later steps may need more."""
    plan = planned()
    plan = replace(plan, base=replace(plan.base, limit=15.0))
    shown = " ".join(render_plan(plan, width=120).split())
    assert "The 15 s of --seconds ran out: later steps may need more." in shown


def test_what_other_programs_take_is_told() -> None:
    """In the summary; the table has what they leave as the working set."""
    plan = planned("M1 8GB")
    (row,) = plan.rows
    mac = replace(row.outcome.mac, other_memory=(6 << 30))
    told = render_plan(replace(plan, rows=(replace(row, outcome=replace(row.outcome, mac=mac)),)), verbose=True)
    assert "Other programs take 6 GiB of the memory: the run has what they leave." in " ".join(told.split())
    assert any(line.split()[:4] == ["M1", "8GB", "2", "GiB"] for line in told.splitlines())


def test_a_loop_that_ended_the_measurement_is_named() -> None:
    """With its rounds and its line; if these make buffers of other sizes each time, later ones may need more."""
    plan = planned()
    base = replace(plan.base, loop=Site(os.path.join(os.getcwd(), "infer.py"), 12))
    assert ended(plan) == ""
    assert ended(replace(plan, base=base)) == (
        "The measurement stopped after 3 rounds of the loop at infer.py:12. A larger --steps measures more of the "
        "script."
    )
    grown = [one._replace(requested=one.requested + one.step) for one in base.story.allocations]
    differing = replace(plan, base=replace(base, story=replace(base.story, allocations=tuple(grown))))
    graphs = max(one.time.graphs for one in plan.times if one.time is not None)
    assert ended(differing) == (
        "The measurement stopped after 3 rounds of the loop at infer.py:12. Their tensors change size, so later rounds "
        f"may need more memory and time. For each size, MPSGraph may keep {kept_graphs(graphs)} that no counter of "
        "torch shows. A larger --steps measures more of the script."
    )
    document = json.loads(plan_json(replace(plan, base=base)))
    validator("plan-1.json").validate(document)
    assert document["loop"] == {"file": os.path.join(os.getcwd(), "infer.py"), "line": 12}


if __name__ == "__main__":
    for name, text in expected().items():
        (EXPECTED / name).write_text(text, encoding="utf-8")
