"""Advice for a wait in every step, by what the user's line does with the value."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from anymps._tables import read_table
from anymps._text import base_name
from anymps.findings._costs import COPY, ITEM
from anymps.findings._loop import AtLine, number
from anymps.findings.advice._remedies import KEEP_MASK, PRINT_EVERY_10, SELDOM_TEST, add_up
from anymps.findings.advice._user_line import UserLine, collected, every_10, given_to_environment, without_read
from anymps.findings.edits import place_at, recorded_statements
from anymps.record import Phase, Site
from anymps.source import LineEdit, Place, names_given, names_in, without_comment


class Advice(NamedTuple):
    """What happened, and a fix and a source of its own; empty where the rule's own is best.

    `elsewhere`: the fix is no change of the line itself but a setting, which the user can make wherever the line lies.
    `edit` is what a person may make of the line, as it keeps a tensor in place of a number, or does less often what the
    line does; `written` is the fix that shows its code, as `{new}`.
    """

    what: str
    fix: str = ""
    source: str = ""
    elsewhere: bool = False
    edit: LineEdit | None = None
    written: str = ""


KEPT: Final = LineEdit(without_read)
_COLLECTED: Final = LineEdit(collected)
_EVERY_10: Final = LineEdit(every_10)


# Formatting a tensor ends up in these torch functions (torch/_tensor_str.py, Tensor.__format__ and __repr__).
_SHOWING_VIA = re.compile(r"_tensor_str|__format__|__repr__|__str__")
_SHOWING_CALL = re.compile(
    r"\b(?:print|pprint)\s*\("
    r"|\b_?(?:log|logger|logging|LOG|LOGGER)\.(?:debug|info|warning|warn|error|critical|exception|log)\("
    r"|\bwandb\.log\(|\bself\.log(?:_dict)?\("
    r"|\.(?:add_scalars?|set_postfix|set_postfix_str|set_description)\(|\b(?:tqdm|stdout|stderr)\.write\("
)
_PACKING: Final = re.compile(r"torch/nn/utils/rnn\.py:pad_packed_sequence")
_SKLEARN = re.compile(r"\b(?:accuracy|f1|precision|recall|roc_auc|average_precision)_score\(|\bconfusion_matrix\(")
_HOSTS_NUMBER = re.compile(r"""\[["'](?:lr|initial_lr|momentum|weight_decay|eps)["']\]$""")
_ONE_NUMBER: Final = 8  # bytes
_WHERE: Final = "only where the number itself is needed; a log needs it every 10 steps."
_TOGETHER: Final = (
    "Keep the values of several steps as tensors, and read them at once: `torch.stack(values).tolist()` is one wait. "
    "Compute on the CPU what the program needs as a number in every step."
)
_SEVERAL: Final = 2  # elements a step
_ELEMENTS: Final = (
    "Read what the loop does not change once before it, a tensor by `x.tolist()` and a list of tensors by "
    "`torch.stack(xs).tolist()`, and go over those numbers: one wait instead of {} a step."
)
_SIZE: Final = f"A size or an index is a Python number: compute it on the CPU. Or k{KEEP_MASK[1:]}"
_INSTEAD: Final[dict[str, str]] = {
    name: fix.format(mask=KEEP_MASK, seldom=SELDOM_TEST)
    for names, fix in read_table(__file__, "reads.toml")["instead"].items()
    for name in names.split()
}
"""What to write instead of an operator that reads back inside, by its base name."""

_LOSS: Final = re.compile(r"\b(?:cross_entropy|nll_loss|CrossEntropyLoss|NLLLoss|criterion|loss_f\w*)\(")
_MASKED: Final = ("index", "_index_put_impl", "masked_select")
_IGNORED: Final = (
    "For a classification loss, mark the excluded targets, `y.masked_fill(~mask, -100)`, and index neither tensor: "
    f"-100 is `ignore_index`, so the mean is over the others. Otherwise k{KEEP_MASK[1:]}"
)


def instead_of(operators: Sequence[str], code: str) -> str:
    """What to write instead of operators that read back inside, the empty text if nothing is known."""
    names = [base_name(operator) for operator in operators]
    if _LOSS.search(code) and any(name in _MASKED for name in names):
        return _IGNORED
    return next((_INSTEAD[name] for name in names if name in _INSTEAD), "")


def shows(line: AtLine) -> bool:
    """Whether the line prints or logs the value."""
    if any(_SHOWING_VIA.search(wait.site.via) for wait in line.occurrences):
        return True
    if _SHOWING_CALL.search(without_comment(line.site.source)):
        return True
    statement = shown_by(line.site)
    return statement is not None and _SHOWING_CALL.match(statement.code.text) is not None


def shown_by(site: Site) -> Place | None:
    """The call over several lines that a line of it is an argument of."""
    place = place_at(site)
    several = place is not None and "\n" in place.code.text and isinstance(place.code.statement, ast.Expr)
    return place if several else None


def show_advice(line: AtLine) -> Advice:
    """A tensor that is printed or logged."""
    what = "Showing a tensor made the host wait"
    code = UserLine.at(line.site)
    if re.search(r"\bself\.log(?:_dict)?\(", code.code):
        kept = "Lightning keeps it on the device and reads it every `log_every_n_steps`."
        return Advice(
            what, f"Hand the tensor over: {kept}", edit=KEPT, written=f"Hand the tensor over, `{{new}}`: {kept}"
        )
    if re.search(r"\.set_(?:postfix|postfix_str|description)\(", code.code):
        return _seldom(what, "Set it every 10 steps")
    if isinstance(code.statement, ast.Expr) or shown_by(line.site) is not None:
        return _seldom(what, PRINT_EVERY_10)
    return Advice(what)


def _seldom(what: str, fix: str) -> Advice:
    return Advice(what, f"{fix}.", edit=_EVERY_10, written=f"{fix}: `{{new}}`.")


def copy_advice(line: AtLine) -> Advice:
    """A tensor that is copied to the CPU."""
    what = f"A blocking copy to the CPU of {line.moved_bytes / line.count:.0f} bytes on average made the host wait"
    code = UserLine.at(line.site)
    if any(_PACKING.match(wait.site.via) for wait in line.occurrences):
        return Advice(
            what,
            (
                "Sort the batch by length, longest first, and pass `enforce_sorted=True` to `pack_padded_sequence`: "
                "nothing is then sorted back."
            ),
            f"torch/nn/utils/rnn.py (torch 2.13); {COPY.source}",
        )
    if _SKLEARN.search(code.code):
        return Advice(
            what,
            "Count on the device, `correct = correct + (prediction == target).sum()`, or score all of an epoch at "
            "once.",
        )
    needed = _needed(line.site)
    if needed:
        return Advice(what, needed)
    if code.fills:
        return Advice(what, f"Create `{code.fills}` on mps, where the value is, and read it after the loop.")
    kept = code.without_read
    if kept and code.appends_to:
        # Batches are of several sizes, the last one smaller.
        joined = "stack" if line.moved_bytes <= _ONE_NUMBER * line.count else "cat"
        return _collect(what, line.site, joined, code.appends_to, _as_read(code), KEPT)
    if kept and code.extends:
        return _collect(what, line.site, "cat", code.extends, _as_read(code), _COLLECTED)
    if kept and code.adds_to:
        return Advice(what, edit=KEPT, written=add_up("{new}", f"`{code.adds_to}`"))
    if kept and code.assigns is not None and isinstance(code.assigns[1], ast.BinOp):
        moved = "with its tensors moved there before the loop."
        return Advice(what, edit=KEPT, written=f"Compute it on the device, `{{new}}`, {moved}")
    if isinstance(code.statement, ast.Return):
        return Advice(what, _RETURNED)
    return Advice(what, _GIVEN_NAME if kept and isinstance(code.statement, ast.Assign) else "")


_ENVIRONMENT: Final = (
    "The environment runs on the CPU and needs its action at once, so one wait for each of its steps remains. If more "
    "is read there, join it before the copy. Several environments can share one batch of actions."
)
_GRADIENT: Final = (
    "Join the gradients into one flat tensor on the device, and copy that once: one wait instead of one per parameter."
)
_RETURNED: Final = (
    "Return the tensor, and copy it where the CPU needs it. One copy for each call stays where the caller goes on by "
    "the value, as with the action of an agent."
)
_GIVEN_NAME: Final = (
    "If the values never change, copy them once, before the loop. If the CPU goes on with them at once, copy less "
    "often, and together what is needed together. Otherwise keep the tensor, and copy it after the loop."
)
_SAVED: Final = "Save once an epoch or every few hundred steps: a checkpoint has to read every weight."


def _needed(site: Site) -> str:
    """What to do about a copy that the program has to have on the host there; empty where it need not."""
    line = UserLine.at(site)
    if line.saves:
        return _SAVED
    if line.reads_gradient:
        return _GRADIENT
    return _ENVIRONMENT if reads_action(site) else ""


def reads_action(site: Site) -> bool:
    """Whether what the line reads is an action that goes to an environment: there, or by a name in a recorded line."""
    line = UserLine.at(site)
    if any(given_to_environment(node) is not None for node in line.parsed.nodes):
        return True
    given = (given_to_environment(node) for _, statement in recorded_statements(site) for node in ast.walk(statement))
    return any(names & names_given(line.statement) for names in given if names is not None)


def _goes_on_with(site: Site, values: str) -> bool:
    """Whether a line of the loop below an append takes one of the list's last values, `values[-1]`: it would wait."""
    return any(
        isinstance(node, ast.Subscript) and ast.unparse(node) == f"{values}[-1]"
        for _, statement in recorded_statements(site)
        for node in ast.walk(statement)
    )


def _collect(what: str, site: Site, joined: str, values: str, read: str, edit: LineEdit) -> Advice:
    """Tensors in a list, read together after the loop."""
    place = place_at(site)
    torch = place.names.torch if place is not None else ""
    after = f"`{torch}.{joined}({values}).{read}`" if torch else f"join `{values}` and read them at once"
    return Advice(what, edit=edit, written=f"Write `{{new}}`, and after the loop {after}: one wait.")


def _as_read(line: UserLine) -> str:
    """How the line reads what it copies."""
    if ".tolist(" in line.code:
        return "tolist()"
    return "cpu().numpy()" if ".numpy(" in line.code else "cpu()"


def anomaly_advice(line: AtLine) -> Advice | None:
    """Reads of a backward's gradients, where anomaly detection was on; they stand at lines that read nothing."""
    if line.phases != (Phase.BACKWARD,) or UserLine.of(line.site.source).without_read:
        return None
    return Advice(
        "Anomaly detection looked for NaN in the gradients",
        "Switch it off unless you are looking for a NaN: `torch.autograd.set_detect_anomaly`, `detect_anomaly=True` "
        "of a "
        "Lightning Trainer. With `check_nan=False` it reads nothing, and still reports which forward failed.",
        "torch/csrc/autograd/engine.cpp (torch 2.13); " + ITEM.source,
        elsewhere=True,
    )


def read_advice(line: AtLine) -> Advice:
    """A value that is read."""
    line_alone = UserLine.of(line.site.source)
    return in_library(line) or _in_test(line_alone) or _in_value(line_alone, line)


def _in_test(line: UserLine) -> Advice | None:
    """A decision by a tensor's value."""
    code = line.code
    if not re.match(r"(?:el)?(?:if|while)\b|assert\b", code):
        return None
    what = _how_read(code, "A test of a tensor's truth made the host wait")
    if re.search(r"\bis(?:nan|inf|finite)\b", code):
        count = "Count what is not finite on the device"
        return Advice(what, f"{count}. {SELDOM_TEST}: test the count every 10 steps or once an epoch.")
    if re.search(r"\.(?:any|all)\(", code):
        return Advice(
            what,
            f"To choose values use `torch.where`. {SELDOM_TEST}: keep the answer on the device, "
            "`seen = seen | (a != b).any()`, and test it every 10 steps.",
        )
    return Advice(what, f"Decide on the device with `torch.where`. {SELDOM_TEST}: test every 10 steps.")


def _how_read(code: str, otherwise: str) -> str:
    """What made the host wait, by the call in the line."""
    method = re.search(r"\.(?:item|tolist)\(", code)
    if method is not None:
        return f"`{method[0]})` made the host wait"
    function = re.search(r"\b(?:float|int|bool)\(", code)
    return otherwise if function is None else f"`{function[0]})` of a tensor made the host wait"


def _in_value(line: UserLine, at: AtLine) -> Advice:
    """A value that is kept."""
    what = _how_read(line.code, "Reading a value made the host wait")
    if line.needs_size:
        return Advice(what, _SIZE)
    if reads_action(at.site):
        return Advice(what, _ENVIRONMENT)
    if by_element := elements_advice(at):
        return Advice(what, by_element)
    kept = line.without_read
    if not kept:
        return Advice(what, _TOGETHER)
    if line.adds_to:
        return Advice(what, _TOGETHER, edit=KEPT, written=add_up("{new}", f"`{line.adds_to}`"))
    if line.appends_to:
        if at.site.known and _goes_on_with(at.site, line.appends_to):
            return Advice(what, _TOGETHER)
        return _collect(what, at.site, "stack", line.appends_to, "tolist()", KEPT)
    if line.assigns is not None and _HOSTS_NUMBER.search(line.assigns[0]):
        return Advice(
            what, "An optimizer's setting is a Python number: compute it from Python numbers, without a tensor."
        )
    tensors, them = ("the tensors", "them") if kept.count(".detach()") > 1 else ("the tensor", "it")
    if line.assigns is not None and line.keeps_any:
        return Advice(what, _TOGETHER, edit=KEPT, written=f"Keep {tensors}, `{{new}}`, and read {them} {_WHERE}")
    if isinstance(line.statement, ast.Return):
        return Advice(what, _TOGETHER, edit=KEPT, written=f"Return {tensors}, `{{new}}`, and read {them} {_WHERE}")
    return Advice(what, _TOGETHER)


def elements_advice(line: AtLine) -> str:
    """What to do where the loop around a line reads what it runs over element by element; empty where it does not."""
    place = place_at(line.site)
    if place is None or 0 < line.per_step < _SEVERAL:
        return ""
    loops = [node.target for node in ast.walk(place.code.statement) if isinstance(node, ast.comprehension)]
    variables = names_in(*loops, *([] if place.loop is None else [place.loop.target]))
    read = UserLine(place.code.text, place.code).read
    elements = [tensor.slice if isinstance(tensor, ast.Subscript) else tensor for tensor in read]
    if not any(variables & names_in(element) for element in elements if not isinstance(element, ast.Call)):
        return ""
    return _ELEMENTS.format(number(line.per_step) if line.per_step else "many")


@dataclass(frozen=True)
class _Read:
    """A row of `reads.toml`; a pattern that is empty fits anything."""

    what: str
    fix: str
    source: str = ""
    elsewhere: bool = False
    via: str = ""
    file: str = ""
    line: str = ""
    phase: str = ""

    def fits(self, line: AtLine, vias: str, code: str) -> bool:
        """Whether a read at a line is this one."""
        pairs = ((self.via, vias), (self.file, line.site.file), (self.line, code))
        here = not self.phase or line.phases == (Phase[self.phase],)
        return here and all(re.search(pattern, text, re.MULTILINE) for pattern, text in pairs)


_READS: Final = [_Read(**row) for row in read_table(__file__, "reads.toml")["read"]]


def in_library(line: AtLine) -> Advice | None:
    """Reads that a function of torch makes, a trainer or a metric."""
    vias = " ".join(wait.site.via for wait in line.occurrences)
    code = f"{without_comment(line.site.source).strip()}\n{UserLine.at(line.site).code}"
    read = next((row for row in _READS if row.fits(line, vias, code)), None)
    source = f"{read.source}; {ITEM.source}" if read is not None and read.source else ""
    return None if read is None else Advice(read.what, read.fix, source, read.elsewhere)
