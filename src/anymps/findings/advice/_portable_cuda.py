"""A line that asks for CUDA, written for every GPU that torch knows: with `device`, and by `torch.accelerator`."""

from __future__ import annotations

import ast

from anymps.findings.advice._new_line import checked, parsed

_CHOICE = "torch.accelerator.current_accelerator(True)"
_FUNCTIONS = {
    "torch.cuda.current_device": "torch.accelerator.current_device_index",
    "torch.cuda.current_stream": "torch.accelerator.current_stream",
    "torch.cuda.device_count": "torch.accelerator.device_count",
    "torch.cuda.is_available": "torch.accelerator.is_available",
    "torch.cuda.manual_seed": "torch.manual_seed",
    "torch.cuda.manual_seed_all": "torch.manual_seed",
    "torch.cuda.set_device": "torch.accelerator.set_device_index",
    "torch.cuda.synchronize": "torch.accelerator.synchronize",
}
_MEMORY = {  # torch.accelerator has them since 2.9
    f"torch.cuda.{name}": f"torch.accelerator.{name}"
    for name in (
        "empty_cache",
        "max_memory_allocated",
        "max_memory_reserved",
        "memory_allocated",
        "memory_reserved",
        "memory_stats",
        "reset_peak_memory_stats",
    )
}
_BY_TYPE = {
    "torch.amp.GradScaler",
    "torch.amp.autocast",
    "torch.autocast",
    "torch.cuda.amp.GradScaler",
    "torch.cuda.amp.autocast",
}
_NEW_NAMES = {"torch.cuda.amp.GradScaler": "torch.amp.GradScaler", "torch.cuda.amp.autocast": "torch.autocast"}


def portable(source: str, *, accelerator_memory: bool = True) -> str:
    """The line without CUDA, empty where there is none that is sure to mean the same.

    `accelerator_memory`: whether this torch has `torch.accelerator.memory_allocated` and the like (2.9).
    """
    code = source.strip()
    tree = parsed(code)
    if tree is None or code.startswith("elif") or not code.isascii():
        return ""
    functions = _FUNCTIONS | (_MEMORY if accelerator_memory else {})
    new = _Writer(code, functions).write(tree)
    if new == code:
        return ""
    return checked(new, instead_of=code, known=("device", "torch"))


class _Writer:
    """Copies the text of a line, with other words where it asks for CUDA."""

    def __init__(self, code: str, functions: dict[str, str]) -> None:
        self._code = code
        self._functions = functions
        self._choices: set[ast.AST] = set()  # where a device is chosen, not used

    def write(self, node: ast.AST) -> str:
        """The text of a node, its parts rewritten."""
        start, end = self._span(node)
        own = self._own(node)
        if own is not None:
            return own
        text, place = "", start
        for child in sorted(self._parts(node), key=self._span):
            first, last = self._span(child)
            text += self._code[place:first] + self.write(child)
            place = last
        return text + self._code[place:end]

    def _own(self, node: ast.AST) -> str | None:
        if isinstance(node, ast.IfExp) and _is_choice(node):
            return f'{_CHOICE} or "cpu"'
        if isinstance(node, (ast.Assign, ast.IfExp)):
            self._choices |= {part for part in ast.iter_child_nodes(node) if _is_cuda(part)}
        if isinstance(node, ast.Constant) and _is_cuda(node):
            return "torch.accelerator.current_accelerator()" if node in self._choices else "device"
        return self._call(node) if isinstance(node, ast.Call) else None

    def _call(self, node: ast.Call) -> str | None:
        name = _dotted(node.func)
        if name == "torch.device" and len(node.args) == 1 and not node.keywords:
            if isinstance(node.args[0], ast.IfExp) and _is_choice(node.args[0]):
                return f'torch.device({_CHOICE} or "cpu")'
            if _is_cuda(node.args[0]):
                return "torch.accelerator.current_accelerator()"
        if name in self._functions:
            arguments = "" if name == "torch.cuda.synchronize" else self._arguments(node, 0)
            return f"{self._functions[name]}({arguments})"
        if name in _BY_TYPE:
            named = bool(node.args) and _is_cuda(node.args[0])
            if node.args[named:] or any(keyword.arg in ("device", "device_type") for keyword in node.keywords):
                return None
            rest = self._arguments(node, 1 if named else 0)
            return f"{_NEW_NAMES.get(name, name)}(device.type{', ' if rest else ''}{rest})"
        if isinstance(node.func, ast.Attribute) and node.func.attr == "cuda" and name != "torch.cuda":
            if len(node.args) > 1:
                return None
            rest = ", ".join(
                f"{it.arg}={self.write(it.value)}" for it in node.keywords if it.arg not in (None, "device")
            )
            return f"{self.write(node.func.value)}.to(device{', ' if rest else ''}{rest})"
        return None

    def _arguments(self, node: ast.Call, skip: int) -> str:
        given = [self.write(it) for it in node.args[skip:]]
        return ", ".join([*given, *(f"{it.arg}={self.write(it.value)}" for it in node.keywords if it.arg)])

    def _parts(self, node: ast.AST) -> list[ast.AST]:
        """The nearest nodes below that have a place of their own."""
        found: list[ast.AST] = []
        for child in ast.iter_child_nodes(node):
            found += [child] if hasattr(child, "col_offset") else self._parts(child)
        return [it for it in found if self._span(it)[0] < len(self._code)]  # without the `pass` of a block

    def _span(self, node: ast.AST) -> tuple[int, int]:
        if not hasattr(node, "col_offset"):
            return 0, len(self._code)
        end = getattr(node, "end_col_offset", None) or len(self._code)
        return node.col_offset, min(end, len(self._code))


def _is_cuda(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value in ("cuda", "cuda:0")


def _is_choice(node: ast.IfExp) -> bool:
    """`"cuda" if torch.cuda.is_available() else "cpu"`, whatever the last part chooses beside a GPU."""
    return _is_cuda(node.body) and ast.unparse(node.test) == "torch.cuda.is_available()"


def _dotted(node: ast.AST) -> str:
    return ast.unparse(node) if isinstance(node, (ast.Attribute, ast.Name)) else ""
