"""What the check of numbers compared (`--check-numbers`), and which calls MPSGraph has on a Mac."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from anymps._errors import UnsupportedTorchError
from anymps._text import base_name
from anymps.findings import Story
from anymps.record import Fate
from anymps.report._text import percent, plural
from anymps.rules import has_metal_kernel, parse_torch_version

_COPIES = frozenset(("copy", "_copy_from", "_copy_from_and_resize", "_to_copy", "_local_scalar_dense"))


@dataclass(frozen=True)
class Numbers:
    """How many calls were compared with the CPU's numbers, of how many operators, how many of them were wrong, and how
    many were left out, by the reason.

    `graphs` of `calls` on mps are operators that MPSGraph computes in the release of torch whose numbers the run had;
    `release` names it where that is not the installed one.
    """

    compared: int
    operators: int
    wrong: int
    left_out: Mapping[str, int]
    graphs: int
    calls: int
    release: str = ""

    @property
    def in_short(self) -> str:
        """`Numbers: compared 120 calls of 31 operators with the CPU: 2 are wrong.`"""
        if not self.compared:
            return "Numbers: no calls were compared with the CPU."
        result = "all agree within rounding"
        if self.wrong:
            result = f"{self.wrong:,} {'is' if self.wrong == 1 else 'are'} wrong"
        calls = f"{plural(self.compared, 'call')} of {plural(self.operators, 'operator')}"
        return f"Numbers: compared {calls} with the CPU: {result}."

    @property
    def in_full(self) -> str:
        """The same, with what was not compared, and what only Apple knows."""
        sentences = [self.in_short]
        if self.left_out:
            reasons = sorted(self.left_out.items(), key=lambda reason: (-reason[1], reason[0]))
            listed = "; ".join(f"{reason} ({count:,})" for reason, count in reasons[:4])
            sentences.append(f"Not compared: {listed}{'; and others' if len(reasons) > 4 else ''}.")
        share = percent(self.graphs, self.calls)
        if self.graphs and share:
            there = f"On a Mac with torch {self.release}" if self.release else "On a Mac"
            sentences.append(
                f"{there}, MPSGraph computes {share} of the calls, and how it rounds is not public; PyTorch's own "
                "kernels compute the rest."
            )
        return " ".join(sentences)


def numbers_of(story: Story) -> Numbers | None:
    """What the check of a recording compared; None if nothing was checked."""
    checked = story.run.numbers
    if checked is None:
        return None
    graphs, calls = graph_share(story)
    kernels = story.run.kernels_torch
    release = kernels if kernels != story.run.torch_version.partition("+")[0] else ""
    return Numbers(checked.compared, checked.operators, checked.wrong, checked.left_out, graphs, calls, release)


def graph_share(story: Story) -> tuple[int, int]:
    """Calls of operators that have no kernel of PyTorch's own, and all calls; no copies.

    In the release whose numbers the run had: that of the Metal kernels that it ran on, else the installed one.
    """
    try:
        release = parse_torch_version(story.run.kernels_torch or story.run.torch_version).release
    except UnsupportedTorchError:
        return 0, 0
    graphs = calls = 0
    for use in story.operators:
        base = base_name(use.name)
        if use.fate is not Fate.NATIVE or not use.name.startswith("aten::") or base in _COPIES:
            continue
        calls += use.count
        graphs += 0 if has_metal_kernel(base, release) else use.count
    return graphs, calls


def numbers_object(story: Story) -> dict[str, object] | None:
    """The same for a program."""
    found = numbers_of(story)
    if found is None:
        return None
    return {
        "compared": found.compared,
        "operators": found.operators,
        "wrong": found.wrong,
        "left_out": dict(sorted(found.left_out.items())),
        "mpsgraph": {"calls": found.graphs, "of": found.calls},
    }
