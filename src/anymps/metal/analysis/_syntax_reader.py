"""The tokens of a function's body, and the types and operators among them: what the syntax tree is read with."""

from __future__ import annotations

from collections.abc import Collection

from anymps.metal.translation import SPACES, Token, closing, closing_angle

LEVELS: tuple[frozenset[str], ...] = tuple(
    frozenset(level.split()) for level in ("||", "&&", "|", "^", "&", "== !=", "< > <= >=", "<< >>", "+ -", "* / %")
)
"""The operators between two values, the loosest first: the precedence of C++."""
_NO_NAMES = (
    "if else for while do switch case default return break continue goto new delete this operator sizeof "
    "alignof asm __asm__ struct class union enum using typedef template try throw static extern mutable "
    "volatile reinterpret_cast const_cast dynamic_cast co_await co_yield co_return requires"
)
_WORDS = frozenset(_NO_NAMES.split())


class Unclear(Exception):
    """Something in a kernel that is not understood here."""


class Reader:
    """Goes through tokens, of which `types` name types. What it does not understand raises `Unclear`."""

    def __init__(self, tokens: list[Token], types: Collection[str]) -> None:
        self._tokens = tokens
        self._types = types
        self._scopes: list[dict[str, str]] = [{}]  # the variables by name, each as the tree calls it
        self._at = 0

    def _text(self, ahead: int = 0) -> str:
        index = self._at + ahead
        return self._tokens[index].text if index < len(self._tokens) else ""

    def _take(self, text: str) -> bool:
        if self._text() == text:
            self._at += 1
            return True
        return False

    def _need(self, text: str) -> None:
        if not self._take(text):
            raise Unclear(f"{self._text()} in the place of {text}")

    def _name(self) -> str:
        if self._at >= len(self._tokens) or self._tokens[self._at].kind != "name" or self._text() in _WORDS:
            raise Unclear(f"{self._text()} in the place of a name")
        self._at += 1
        return self._tokens[self._at - 1].text

    def _operator(self) -> str:
        """What stands here, a shift as one: the tokens keep `<` and `>` apart, as templates need them."""
        if self._text() in ("<", ">") and self._text(1) == self._text():
            first, second = self._tokens[self._at : self._at + 2]
            if first.end == second.start:
                return first.text * 2
        return self._text()

    def _lookup(self, name: str) -> str | None:
        return next((scope[name] for scope in reversed(self._scopes) if name in scope), None)

    def _skip_type(self, at: int) -> int:
        """Behind the type that begins there, without stars; `at` if none does."""
        tokens = self._tokens
        start = at
        while at < len(tokens) and (tokens[at].text in SPACES or tokens[at].text in ("const", "constexpr")):
            at += 1
        if at + 2 < len(tokens) and (tokens[at].text, tokens[at + 1].text) == ("metal", "::"):
            at += 2
        if at >= len(tokens):
            return start
        text = tokens[at].text
        if text == "auto" or text in self._types:
            if self._lookup(text) is not None:
                return start
            at += 1
            if text == "unsigned" and at < len(tokens) and tokens[at].text in ("int", "long", "short", "char"):
                at += 1
        elif text == "vec" and at + 1 < len(tokens) and tokens[at + 1].text == "<":
            at = self._arguments_end(at + 1)
        elif text == "decltype" and at + 1 < len(tokens) and tokens[at + 1].text == "(":
            at = closing(tokens, at + 1) + 1
        else:
            return start
        while at < len(tokens) and tokens[at].text in ("const", *SPACES):
            at += 1
        return at

    def _arguments_end(self, opening: int) -> int:
        """Behind the arguments of a template: types and numbers."""
        close = closing_angle(self._tokens, opening)
        if close == opening:
            raise Unclear("a comparison with a template")
        at = opening + 1
        while at < close:
            after = self._skip_type(at)
            if after == at:
                after = at + 1
                if self._tokens[at].kind != "number":
                    raise Unclear("an argument of a template")
            if self._tokens[after].text not in (",", ">"):
                raise Unclear("an argument of a template")
            at = after + 1
        return close + 1
