"""Names of operators as they are looked up here: without namespace, overload and the mark of the form in place."""

from __future__ import annotations


def base_name(operator: str) -> str:
    """`aten::add_.Tensor` as `add`."""
    name = operator.rpartition("::")[2].partition(".")[0]
    return name[:-1] if name.endswith("_") and not name.endswith("__") else name


def names_of(text: str) -> frozenset[str]:
    """The names in a text, separated by blanks."""
    return frozenset(text.split())
