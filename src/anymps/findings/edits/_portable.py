"""A statement that asks for CUDA, with mps before it: `"mps" if torch.backends.mps.is_available() else "cuda"`.

The old code stays unchanged after the `else`, so machines with CUDA, and those without a GPU, do what they did. mps
comes first: `--cuda-as-mps` answers a question for CUDA with yes, so the change would not be tested otherwise. Only
seeds become `torch.manual_seed`, which seeds every device.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Final

from anymps.findings.edits._device_place import (
    NAMES_DEVICE,
    chooses_for,
    is_loose,
    of_block,
    owner_around,
    tells_of_tensor,
)
from anymps.findings.edits._limits import limited_names, widened
from anymps.source import (
    Code,
    Insert,
    Names,
    Place,
    Rewritten,
    Splice,
    argument,
    compares_device,
    is_device_text,
    mentions_mps,
    name_of,
    names_argument,
    unpacks,
)

# What torch.accelerator does for CUDA as torch.cuda does it, and raises where there is no GPU, as that does.
_ACCELERATOR: Final = {
    "current_device": "current_device_index",
    "device_count": "device_count",
    "set_device": "set_device_index",
    "synchronize": "synchronize",
}
_HOLDS_DEVICE: Final = re.compile(r"(?:device|^dev)$", re.IGNORECASE)
_SEEDS: Final = ("manual_seed", "manual_seed_all")
# What runs without a GPU, too, where torch.accelerator raises (torch 2.13): it stays as it is but for mps.
_ONLY_MPS: Final = {
    "current_stream": "accelerator.current_stream()",
    "empty_cache": "mps.empty_cache()",
    **dict.fromkeys(_SEEDS, "mps.manual_seed({})"),
    "memory_allocated": "mps.current_allocated_memory()",
    "memory_reserved": "mps.driver_allocated_memory()",
}
_MEMORY: Final = ("max_memory_allocated", "max_memory_reserved", "memory_stats", "reset_peak_memory_stats")
_OLD_AMP: Final = {
    "torch.cuda.amp.GradScaler": ("amp.GradScaler", ()),
    "torch.cuda.amp.grad_scaler.GradScaler": ("amp.GradScaler", ()),
    "torch.cuda.amp.autocast": ("autocast", ("enabled", "dtype", "cache_enabled")),
    "torch.cuda.amp.autocast_mode.autocast": ("autocast", ("enabled", "dtype", "cache_enabled")),
}
_AMP: Final = ("torch.amp.GradScaler", "torch.amp.grad_scaler.GradScaler")
_NO_DEVICE: Final = -1  # with which `torch.cuda.device` does nothing, in a torch without CUDA, too
_KNOWN: Final = frozenset({"amp", "device", "is_available", *_ACCELERATOR, *_ONLY_MPS, *_MEMORY})


def chosen_by_name(place: Place) -> Rewritten | None:
    """A statement with a device as text, `args.device = "cuda"`, with mps before it; None where it chooses none."""
    if not any(is_device_text(node) for node in place.code.nodes):
        return None
    return portable(place)


def chooses_device(place: Place) -> bool:
    """Whether a statement names a CUDA device and gives it to a name, a parameter or an option."""
    kinds = (ast.Assign, ast.AnnAssign, ast.FunctionDef, ast.AsyncFunctionDef)
    return isinstance(place.code.statement, kinds) and any(map(is_device_text, place.code.nodes))


def asks_for_mps(place: Place) -> bool:
    """Whether a statement names mps itself."""
    return any(mentions_mps(node) for node in place.code.nodes)


def only_cuda(node: ast.AST, names: Names) -> bool:
    """Whether a node is something of `torch.cuda` that mps has no counterpart of: a name, a type, a stream."""
    meaning = names.meaning(node) if isinstance(node, (ast.Attribute, ast.Name)) else ""
    return meaning.startswith("torch.cuda.") and meaning.split(".")[2] not in _KNOWN


def is_seeded(place: Place) -> bool:
    """Whether a statement, or the whole block below it, gives CUDA a seed that every device has anyway."""
    statements = place.inner if place.code.is_head else (place.code.statement,)
    return bool(statements) and all(_is_seeded(statement, place.names) for statement in statements)


def _is_seeded(statement: ast.AST, names: Names) -> bool:
    call = statement.value if isinstance(statement, ast.Expr) else None
    if not isinstance(call, ast.Call) or len(call.args) != 1:
        return False
    if names.meaning(call.func) not in {f"torch.cuda.{name}" for name in _SEEDS}:
        return False
    given = (node for node in names.nodes if isinstance(node, ast.Call) and node.args)
    seeds = (ast.unparse(other.args[0]) for other in given if names.meaning(other.func) == "torch.manual_seed")
    return ast.unparse(call.args[0]) in seeds


def tests_device(place: Place) -> bool:
    """Whether the statement, or a test that it stands under, compares a device with CUDA by name."""
    return any(map(compares_device, (place.code.statement, *place.tests)))


def portable(place: Place) -> Rewritten | None:
    """A statement with mps before CUDA; None where there is nothing to change, or not without knowing more."""
    torch = place.names.torch
    if any(only_cuda(node, place.names) for node in place.code.nodes):
        return None
    if not torch or tests_device(place) or any(mentions_mps(part) for test in place.tests for part in ast.walk(test)):
        return None
    if is_seeded(place):
        return None
    writer = _Writer(place, torch)
    splices = tuple(writer.write(place.code.statement))
    return Rewritten(splices, tuple(writer.inserts)) if splices else None


class _Writer:
    """Finds what asks for CUDA in a statement."""

    def __init__(self, place: Place, torch: str) -> None:
        self._place = place
        self._code: Code = place.code
        self._torch = torch
        self._mps = f"{torch}.backends.mps.is_available()"
        self.inserts: list[Insert] = []

    def write(self, node: ast.AST) -> Iterator[Splice]:
        """The splices of a node and all within it that is part of the text."""
        own = self._own(node)
        if own is not None:
            yield from own
            return
        for child in ast.iter_child_nodes(node):
            if child in self._code.parents:
                yield from self.write(child)

    def _own(self, node: ast.AST) -> list[Splice] | None:
        """What becomes of a node as a whole; None where its parts are to be looked at."""
        if isinstance(node, (ast.IfExp, ast.BoolOp)) and any(map(mentions_mps, ast.walk(node))):
            return []  # portable already
        if isinstance(node, ast.IfExp) and any(tells_of_tensor(part) for part in ast.walk(node.test)):
            return self._of_tensor(node)
        if isinstance(node, ast.IfExp) and self._is_device(node.body):
            return self._where_taken(node, self._choice(node))
        if isinstance(node, ast.IfExp) and (option := self._option(node)) is not None:
            return self._where_taken(node, self._choice(node, option))
        if isinstance(node, ast.expr) and is_device_text(node):
            return (
                self._where_taken(node, self._instead(node, '"mps"'))
                if chooses_for(self._code, node, self._place.function)
                else []
            )
        if isinstance(node, ast.Call):
            return self._call(node)
        if isinstance(node, ast.Attribute) and tells_of_tensor(node):
            return of_block(self._place, node)
        return None

    def _of_tensor(self, node: ast.IfExp) -> list[Splice]:
        """`x.device` for `torch.device("cuda") if x.is_cuda else torch.device("cpu")`: it is never true on mps."""
        owner = node.test.value if isinstance(node.test, ast.Attribute) else None
        plain = is_device_text(node.body)
        other = (
            node.orelse
            if plain
            else argument(node.orelse, "type", ("type",))
            if isinstance(node.orelse, ast.Call) and self._meaning(node.orelse.func) == "torch.device"
            else None
        )
        is_cpu = isinstance(other, ast.Constant) and other.value == "cpu"
        if owner is None or not is_cpu or not self._is_device(node.body):
            return []
        start, end = self._code.span(node)
        return [Splice(start, end, f"{self._code.source(owner)}.device{'.type' if plain else ''}")]

    def _where_taken(self, node: ast.expr, splices: list[Splice]) -> list[Splice]:
        """The splices with those that let mps pass there; none where the program would refuse it."""
        beside = widened(self._code, node, limited_names(self._place.names.nodes))
        return [] if beside is None or not splices else [*splices, *beside]

    def _is_device(self, node: ast.expr) -> bool:
        return is_device_text(node) or self._is_torch_device(node)

    def _is_torch_device(self, node: ast.AST) -> bool:
        if not isinstance(node, ast.Call) or self._meaning(node.func) != "torch.device":
            return False
        first = argument(node, "type", ("type",)) or argument(node, "device")
        return first is not None and is_device_text(first)

    def _meaning(self, node: ast.AST) -> str:
        return self._place.names.meaning(node)

    def _option(self, node: ast.IfExp) -> ast.expr | None:
        """`args.device` of `args.device if torch.cuda.is_available() else "cpu"`: it may name CUDA, or the CPU."""
        negated = isinstance(node.test, ast.UnaryOp) and isinstance(node.test.op, ast.Not)
        there = node.orelse if negated else node.body
        asked = any(map(self._asks, ast.walk(node.test)))
        named = isinstance(there, (ast.Name, ast.Attribute)) and NAMES_DEVICE.search(name_of(there))
        return there if asked and named else None

    def _choice(self, node: ast.IfExp, option: ast.expr | None = None) -> list[Splice]:
        """`"cuda" if torch.cuda.is_available() and not args.cpu else "cpu"`: the same question before, about mps.

        Of an `option` it is asked whether it names CUDA: what else it names stays.
        """
        test = self._code.source(node.test)
        start = self._code.span(node)[0]
        named = f'str({self._code.source(option)}).startswith("cuda")' if option is not None else ""
        if isinstance(node.test, ast.UnaryOp) and self._asks(node.test.operand) and named:
            return [Splice(start, start, f'"mps" if {self._mps} and {named} else ')]
        asked = [part for part in ast.walk(node.test) if isinstance(part, ast.Call) and self._asks(part)]
        if any(isinstance(part, ast.UnaryOp) and isinstance(part.op, ast.Not) and self._asks(part.operand)
               for part in ast.walk(node.test)):  # fmt: skip
            return []
        if asked:
            before = self._code.span(node.test)[0]
            for call in sorted(asked, key=self._code.span, reverse=True):
                first, last = self._code.span(call)
                test = test[: first - before] + self._mps + test[last - before :]
        else:
            loose = isinstance(node.test, (ast.IfExp, ast.Lambda, ast.NamedExpr)) or (
                isinstance(node.test, ast.BoolOp) and isinstance(node.test.op, ast.Or)
            )
            test = f"{self._mps} and {f'({test})' if loose else test}"
        plain = option is not None or is_device_text(node.body)
        function = self._code.source(node.body.func) if isinstance(node.body, ast.Call) else ""
        mps = '"mps"' if plain else f'{function}("mps")'
        if named:
            test = f"{f'({test})' if isinstance(node.test, ast.BoolOp) else test} and {named}"
        return [Splice(start, start, f"{mps} if {test} else ")]

    def _asks(self, node: ast.AST) -> bool:
        return isinstance(node, ast.Call) and self._meaning(node.func) == "torch.cuda.is_available"

    def _instead(self, node: ast.expr, mps: str) -> list[Splice]:
        """The node where there is no mps; of a statement by itself, in the other branch of an `if`."""
        start, end = self._code.span(node)
        if self._is_statement(node):
            return [Splice(start, start, f"if {self._mps}:\n    {mps}\nelse:\n    ")]
        opening, closing = ("", "") if is_loose(self._code, node) else ("(", ")")
        return [
            Splice(start, start, f"{opening}{mps} if {self._mps} else "),
            *([Splice(end, end, closing)] if closing else []),
        ]

    def _is_statement(self, node: ast.expr) -> bool:
        """Whether nothing takes its value."""
        return isinstance(self._code.statement, ast.Expr) and self._code.statement.value is node

    def _call(self, node: ast.Call) -> list[Splice] | None:
        name = self._meaning(node.func)
        if self._asks(node):
            return self._question(node)
        if self._is_torch_device(node) and len(node.args) + len(node.keywords) > 1:
            return self._instead(node, f'{self._code.source(node.func)}("mps")')
        name = self._imported_amp(node, name)
        if name in _OLD_AMP:
            return self._amp(node, *_OLD_AMP[name])
        if name in _AMP and not argument(node, "device", ("device",)) and not unpacks(node):
            place = self._code.span(node.func)[1] + 1
            rest = ", " if node.args or node.keywords else ""
            return [Splice(place, place, f'"mps" if {self._mps} else "cuda"{rest}')]
        if name.startswith("torch.cuda."):
            return self._function_of_cuda(node, name.removeprefix("torch.cuda."))
        if isinstance(node.func, ast.Attribute) and node.func.attr == "cuda" and name != "torch.cuda":
            return self._moved(node, node.func)
        return None

    def _imported_amp(self, node: ast.Call, name: str) -> str:
        """The full name of `autocast()` where its import is not known: only that of CUDA needs no device."""
        if self._place.names.whole or not isinstance(node.func, ast.Name) or name not in ("GradScaler", "autocast"):
            return name
        given = names_argument(node, "device", "device_type")
        switch = all(isinstance(getattr(first, "value", None), bool) for first in node.args[:1])
        return f"torch.cuda.amp.{name}" if switch and not given else name

    def _question(self, node: ast.Call) -> list[Splice]:
        """Whether there is a GPU; not where what hangs on it is CUDA's own."""
        if any(only_cuda(part, self._place.names) for statement in self._place.inner for part in ast.walk(statement)):
            return []
        parent = self._code.parents.get(node)
        plain = (
            is_loose(self._code, node)
            or isinstance(parent, (ast.If, ast.While, ast.Assert, ast.IfExp))
            or (isinstance(parent, ast.BoolOp) and isinstance(parent.op, ast.Or))
        )
        start, end = self._code.span(node)
        first = Splice(start, start, f"{'' if plain else '('}{self._mps} or ")
        return [first] if plain else [first, Splice(end, end, ")")]

    def _function_of_cuda(self, node: ast.Call, name: str) -> list[Splice] | None:
        if name in _ACCELERATOR:
            start, end = self._code.span(node.func)
            inner = [splice for child in (*node.args, *node.keywords) for splice in self.write(child)]
            if name == "set_device" and node.args and not inner and _HOLDS_DEVICE.search(name_of(node.args[0])):
                # A device that has become mps has no index, which the function asks for.
                given = self._code.source(node.args[0])
                inner = [Splice(*self._code.span(node.args[0]), f"{self._torch}.device({given}).index or 0")]
            return [Splice(start, end, f"{self._torch}.accelerator.{_ACCELERATOR[name]}"), *inner]
        if name in _SEEDS and self._is_statement(node):
            return [Splice(*self._code.span(node.func), f"{self._torch}.manual_seed")]
        if name in _ONLY_MPS:
            given = self._code.source(node.args[0]) if node.args else ""
            return self._instead(node, f"{self._torch}.{_ONLY_MPS[name].format(given)}")
        if name == "device" and len(node.args) == 1 and not node.keywords:
            index = self._code.source(node.args[0])
            return [Splice(*self._code.span(node.args[0]), self._index(node.args[0], index))]
        if name in _MEMORY:
            return self._instead(node, f"{self._torch}.accelerator.{name}()")
        return []

    def _index(self, node: ast.expr, index: str) -> str:
        """The index of a CUDA device, and none where there is no CUDA."""
        loose = f"({index})" if isinstance(node, (ast.IfExp, ast.Lambda)) else index
        return f"{loose} if {self._torch}.cuda.is_available() else {_NO_DEVICE}"

    def _amp(self, node: ast.Call, new: str, order: tuple[str, ...]) -> list[Splice]:
        """The function that takes a device, with the arguments of the old one."""
        if any(isinstance(value, ast.Starred) for value in node.args) or len(node.args) > len(order or node.args):
            return []
        start, end = self._code.span(node.func)
        rest = ", " if node.args or node.keywords else ""
        named = [
            Splice(self._code.span(value)[0], self._code.span(value)[0], f"{word}=")
            for value, word in zip(node.args, order, strict=False)
        ]
        opening = self._code.text.index("(", end) + 1
        return [
            Splice(start, end, f"{self._torch}.{new}"),
            Splice(opening, opening, f'"mps" if {self._mps} else "cuda"{rest}'),
            *named,
        ]

    def _moved(self, node: ast.Call, function: ast.Attribute) -> list[Splice] | None:
        """`x.cuda()` by `device`; with an index only where there is no mps."""
        to_name = Splice(self._code.span(function)[1] - len("cuda"), self._code.span(function)[1], "to")
        inner = list(self.write(function.value))
        if not node.args and argument(node, "device") is None:
            if unpacks(node):
                return inner
            place = self._code.span(node)[1] - 1 if not node.keywords else self._code.span(node.keywords[0])[0]
            rest = ", " if node.keywords else ""
            return [*inner, to_name, Splice(place, place, f"{self._device()}{rest}")]
        if inner or len(node.args) > 1:
            return inner
        rest = "".join(
            f", {keyword.arg}={self._code.source(keyword.value)}"
            for keyword in node.keywords
            if keyword.arg not in (None, "device")
        )
        return self._instead(node, f'{self._code.source(function.value)}.to("mps"{rest})')

    def _device(self) -> str:
        """`device` where it is the GPU there, or can be made; else the choice itself. Under `if x.is_cuda:` x's own."""
        names = self._place.names
        if owner := owner_around(self._place):
            return f"{owner}.device"
        if "device" in names.mentioned:
            return "device" if self._is_gpu() else f'"mps" if {self._mps} else "cuda"'
        if not self.inserts:
            self.inserts.append(device_line(self._torch))
        return "device"

    def _is_gpu(self) -> bool:
        """Whether every value of `device` in the file is CUDA's, or the one that a machine without has, too."""
        names, line = self._place.names, self._place.line
        values = names.given.get("device", ())
        if "device" not in names.bound or not values:
            return False
        return all(
            given.value is not None
            and any(is_device_text(part) for part in ast.walk(given.value))
            and all(self._meaning(part).startswith("torch") or part.id == names.torch
                    for part in ast.walk(given.value) if isinstance(part, ast.Name))
            and given.line < line
            for given in values
        )  # fmt: skip


def device_line(torch: str) -> Insert:
    """The line that makes `device`: mps, CUDA, or the CPU."""
    return Insert(
        "device",
        f'device = {torch}.device("mps" if {torch}.backends.mps.is_available() else '
        f'"cuda" if {torch}.cuda.is_available() else "cpu")',
    )
