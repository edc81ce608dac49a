"""Pointers and references that get memory of another address space, by libclang's types of the tree.

Only those errors of libclang count in which two types differ in nothing but their address spaces. It knows little of
Metal's library, so the C++ compiler judges the rest.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from anymps.metal.language._tree import Said, Tree
from anymps.metal.translation import Refused

_SPACE = re.compile(r"__(private|global|local|constant|generic)\b")
_METALS = {"global": "device ", "local": "threadgroup ", "constant": "constant ", "private": ""}  # `thread` is not said


def _type(name: str) -> str:
    """A type as clang names it: as it is written and, where that is another name, what it stands for (`..._too`)."""
    return rf"'(?P<{name}>[^']+)'(?: \(aka '(?P<{name}_too>[^']+)'\))?(?: \(vector of [^)]*\))?"


_TO, _FROM = _type("to"), _type("given")
_ASSIGNED = "assigning to {to} from incompatible type {given}"
_WORDS = (  # what libclang says of two types, and what Metal's compiler says of them
    (
        rf"(?P<before>cannot initialize .* of type) {_TO} with an (?P<how>[lr]value) of type {_FROM}$",
        "{before} {to} with an {how} of type {given}",
    ),
    (rf"assigning {_FROM} to {_TO} changes address space of pointer$", _ASSIGNED),
    (rf"assigning to {_TO} from incompatible type {_FROM}$", _ASSIGNED),
    (
        rf"binding reference of type {_TO} to value of type {_FROM} changes address space$",
        "reference to type {to} could not bind to an lvalue of type {given}",
    ),
    (
        rf"(?P<before>(?:C-style|reinterpret_|static_|const_)\s?cast from) {_FROM} to {_TO} "
        r"(?P<after>converts between mismatching address spaces|is not allowed)$",
        "{before} {given} to {to} {after}",
    ),
    (
        rf"(?P<before>incompatible operand types|comparison of distinct pointer types) \({_TO} and {_FROM}\)$",
        "{before} ({to} and {given})",
    ),
)
_NO_MATCH = re.compile(r"no matching (?:function for call to|constructor for initialization of) '([^']+)'$")
_COUNT = re.compile(r"requires (?:at (?:least|most) )?(?:\d+|single) .*argument|no arguments")
_PASSED = re.compile(
    r"(?:cannot pass pointer to|cannot bind reference in) address space '__(\w+)' "
    r"(?:as a pointer to|to object in) address space '__(\w+)'"
)
_KNOWN = re.compile(rf"no known conversion from {_FROM} to {_TO} for")
_DEDUCED = re.compile(rf"deduced type {_FROM} of .* does not match adjusted type {_TO} of argument")
_COPIES = re.compile(r"\(the implicit (?:copy|move) constructor\)")
_DISABLED = "candidate disabled: anymps: "  # in library.h: an atomic function that a type, or an order, has not


def refused_conversions(tree: Tree) -> Iterator[Refused]:
    """Every place where memory of one address space is taken for another's."""
    for said in tree.said:
        text = _words(said)
        if text:
            yield Refused(text, said.offset)


def _words(said: Said) -> str:
    """What Metal's compiler would say of it; empty if address spaces are not what is wrong."""
    for pattern, words in _WORDS:
        if match := re.match(pattern, said.text):
            parts = match.groupdict()
            mark = " &" if words.startswith("reference") else ""
            if not _differ((parts["to_too"] or parts["to"]) + mark, (parts["given_too"] or parts["given"]) + mark):
                return ""
            plain = {name: _plain(parts[name], parts[f"{name}_too"]) for name in ("to", "given")}
            return words.format(**{**parts, **plain})
    if (match := _NO_MATCH.match(said.text)) and _is_about_spaces(said):
        return f"{said.text[: match.start(1)]}{_spaces(match[1])}'"
    return ""


def _is_about_spaces(said: Said) -> bool:
    """Whether each function that could be meant fails for an address space, or for what Metal has it not for."""
    if any(note.startswith(_DISABLED) for note in said.notes):
        return True
    found = False
    for note in said.notes:
        if note.startswith(("in instantiation", "expanded from", "while ")):
            continue
        if _COUNT.search(note) or _COPIES.search(note):
            continue
        if match := _PASSED.search(note):
            different = "generic" not in match.groups()
        elif match := _KNOWN.search(note) or _DEDUCED.search(note):
            one, one_too, other, other_too = match.groups()
            different = _differ(one_too or one, other_too or other)
        else:
            different = False
        if not different:
            return False
        found = True
    return found


def _differ(one: str, other: str) -> bool:
    """Whether both are pointers, references or arrays, and their memory is in two spaces that Metal has."""
    first, second = _memory(one), _memory(other)
    return bool(first and second) and first != second and "generic" not in (first, second)


def _memory(text: str) -> str:
    """The address space that a type points to, or that an array is in."""
    pointer = re.match(r"(.*?)[*&]+(?: ?__private)?(?: ?const)?$", text)
    target = pointer[1] if pointer is not None else text if text.endswith("]") else ""
    found = _SPACE.findall(target)
    return found[-1] if found else ""


def _plain(text: str, too: str | None) -> str:
    also = f" (aka '{_spaces(too)}')" if too and _spaces(too) != _spaces(text) else ""
    return f"'{_spaces(text)}'{also}"


def type_words(kind: Any) -> str:
    """A type in quotes, as Metal's compiler says it."""
    text, canonical = kind.spelling, kind.get_canonical().spelling
    return _plain(text, canonical if canonical != text and "vector" not in canonical else None)


def _spaces(text: str) -> str:
    """A type with Metal's words for address spaces."""
    text = re.sub(r"([*&]) ?__private\b", r"\1", text)
    text = re.sub(r"((?:const |volatile )*)__(private|global|local|constant) ", lambda m: m[1] + _METALS[m[2]], text)
    text = text.replace("anymps_name_", "").replace("__bf16", "bfloat")
    return text.replace("__private", "").strip()
