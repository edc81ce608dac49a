"""A plan as text and as JSON, whole, from a hand-made one."""

from __future__ import annotations

import json

from anymps.report._plan import render_plan

from anymps import parse_mac
from anymps.plan import Assumption, Change, Measured, Outcome, Plan, Row, Scenario, Verdict
from anymps.record import Phase, Role, Site
from anymps.record._memory import Allocation, Category, MemoryStory, tell
from anymps.report import plan_json

GIB = 1024**3
SITES = {0: Site("", 0), 1: Site("/home/me/train.py", 7, "main", "loss = net(batch)")}


def story() -> MemoryStory:
    """Weights of 1 GiB and activations of 3 GiB."""
    none, parameter = int(Role.NONE), int(Role.PARAMETER)
    forward, backward = int(Phase.FORWARD), int(Phase.BACKWARD)
    return tell(
        [
            (1, 1, 0, 10, 0, GIB, GIB, GIB, GIB, 1, 1, 1, 0, 0, int(Phase.MOVE), 0, parameter),
            (2, 2, 3, 20, 30, 3 * GIB, 3 * GIB - 1024, 4 * GIB, 5 * GIB, 2, 2, 1, 0, 0, forward, backward, none),
        ],
        {1: "aten::copy_", 2: "aten::mm"},
        {0: "", 1: "", 2: "net.head"},
        SITES,
    )


def planned(mac: str | None = None) -> Plan:
    """One Mac on which it fails, one on which it fits, one change, one assumption."""
    failing = Allocation(
        2, 2, 3, 20, 3 * GIB, 3 * GIB, Category.ACTIVATIONS, "aten::mm", "net.head", SITES[1], 0, Phase.FORWARD
    )
    small, large = parse_mac("M1 8GB"), parse_mac("M3 Pro 18GB")
    rows = (
        Row(Outcome(small, Verdict.FAILS, GIB, GIB, 0, "MPS backend out of memory (here)", failing), 2),
        Row(Outcome(large, Verdict.FITS, 4 * GIB, 5 * GIB, large.recommended_max_memory - 5 * GIB), 21),
    )
    read = Assumption("item", "/home/me/train.py", 9, "print(loss.item())", 3)
    base = Measured(Scenario(), story(), 3, 8, None, (read,), {"status": 0})
    changes = (
        Change(Scenario(checkpoint=True), 2 * GIB, 3 * GIB, Outcome(small, Verdict.FITS, 2 * GIB, 3 * GIB, GIB)),
        Change(Scenario(optimizer="sgd"), 0, 0, None, "it has no optimizer"),
    )
    chosen = parse_mac(mac) if mac is not None else None
    return Plan("train.py", base, rows[:1] if mac is not None else rows, changes, chosen, "2.13.0")


TEXT = """\
Fits from 18 GB on.
train.py, batch 8: at its peak 4 GiB in tensors and 5 GiB of the allocator's heaps, in step 1,
forward, at /home/me/train.py:7 (torch 2.13.0, 3 steps measured on shapes).

What fills the memory at the peak
                             size  share
  activations               3 GiB   75 %  #####################
  parameters                1 GiB   25 %  #######
  rounding, in the above    1 KiB   <1 %
  heaps beyond that: cache  1 GiB   25 %

Activations by module  kept for the backward, at the peak
   size  tensors  module
  3 GiB        1  net.head

Your lines that hold most  at the peak
   size  what         operator  line
  3 GiB  activations  mm        /home/me/train.py:7
  1 GiB  parameters   copy_     /home/me/train.py:7

On Macs  macOS as in `anymps plan --mac`; the working set is what Metal recommends
  Mac          working set   peak   margin                            largest batch
  M1 8GB           5.3 GiB                  fails in step 1, forward              2
  M3 Pro 18GB     13.3 GiB  5 GiB  8.3 GiB  fits                                 21

What if  each change alone, measured the same way
  change                    tensors  heaps
  as written                  4 GiB  5 GiB
  activation checkpointing    2 GiB  3 GiB  0.50x  fits on M1 8GB
  SGD                                              it has no optimizer

If it does not fit  in this order
  1. Halve the batch, and accumulate gradients over two of them: the same training with less memory.
  2. Shorten the sequences or the pictures: activations grow with them, attention scores with their
  square.
  3. Remove what is kept by accident: a loss added up with its graph (use loss.detach()), outputs
  stored in a list.
  4. Recompute activations (torch.utils.checkpoint, gradient_checkpointing_enable()): a third more
  work.
  5. Lower the precision: torch.autocast('mps', dtype=torch.bfloat16) from M3 on, float16 with a
  GradScaler before.
  6. Last of all PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0: it lifts torch's limit, not the memory's; the
  system can fail.

Values that the script read  a plan has none: numbers are 0, everything is nonzero and unique
  times  what  line
      3  item  /home/me/train.py:9

Limits of this plan
  - Memory of MPSGraph (matrix products, convolutions) and of Metal itself is not in these numbers;
  leave it room.
  - What the host keeps beside it (data sets, the Python process) is not counted, and a Mac has one
  memory for both.
"""


def test_a_plan_as_text_is_this() -> None:
    """Every section, whole."""
    assert render_plan(planned()) == TEXT


def test_a_plan_for_one_mac_begins_with_its_verdict() -> None:
    """What happens there, then torch's own text."""
    lines = render_plan(planned("M1 8GB")).splitlines()
    assert lines[:2] == ["On M1 8GB: fails.", "MPS backend out of memory (here)"]


def test_a_plan_as_json_is_this() -> None:
    """Bytes, and nothing rounded."""
    document = json.loads(plan_json(planned()))
    assert document == {
        "version": 1,
        "script": "train.py",
        "torch": "2.13.0",
        "steps": 3,
        "batch": 8,
        "sequence": None,
        "peak": {
            "allocated": 4294967296,
            "reserved": 5368709120,
            "step": 0,
            "phase": "forward",
            "file": "/home/me/train.py",
            "line": 7,
            "categories": {
                "parameters": 1073741824,
                "gradients": 0,
                "optimizer state": 0,
                "batches": 0,
                "activations": 3221225472,
                "held by the script": 0,
                "temporaries": 0,
                "before the recording": 0,
            },
            "activations": [{"module": "net.head", "bytes": 3221225472, "tensors": 1}],
        },
        "macs": [
            {
                "mac": "M1 8GB",
                "working_set": 5726633984,
                "verdict": "fails",
                "peak_allocated": 1073741824,
                "peak_reserved": 1073741824,
                "margin": 0,
                "message": "MPS backend out of memory (here)",
                "fails_in": {"step": 0, "phase": "forward"},
                "largest_batch": 2,
            },
            {
                "mac": "M3 Pro 18GB",
                "working_set": 14302248960,
                "verdict": "fits",
                "peak_allocated": 4294967296,
                "peak_reserved": 5368709120,
                "margin": 8933539840,
                "message": "",
                "fails_in": None,
                "largest_batch": 21,
            },
        ],
        "what_if": [
            {
                "change": "activation checkpointing",
                "peak_allocated": 2147483648,
                "peak_reserved": 3221225472,
                "verdict": "fits",
                "problem": "",
            },
            {
                "change": "SGD",
                "peak_allocated": 0,
                "peak_reserved": 0,
                "verdict": None,
                "problem": "it has no optimizer",
            },
        ],
        "assumptions": [{"what": "item", "file": "/home/me/train.py", "line": 9, "count": 3}],
    }


def test_colour_adds_control_sequences_only() -> None:
    """Without them the text is the same."""
    coloured = render_plan(planned(), color=True)
    assert "\x1b[" in coloured
    assert "\x1b[" not in render_plan(planned())
