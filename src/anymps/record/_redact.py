"""Replaces what looks like a secret, by its form or by the name of an option, a variable or a field.

Arguments, variables, exception texts and lines of source go into recordings and from there into reports, which people
hand on.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from anymps.record._secret_forms import HIDDEN, hide_forms
from anymps.record._secret_names import (
    is_flag,
    is_login,
    is_mixed,
    is_option,
    is_ordinary,
    is_plain,
    is_secret,
    looks_random,
    may_be_secret,
    may_name_secrets,
    names_secret,
)

_NAME: Final = r"(?P<name>[A-Za-z_][\w\-.]{1,60})"
_NAME_OR_LETTER: Final = r"(?P<name>[A-Za-z_][\w\-.]{0,60})"
# `password="..."`, `"api_key": "..."`: a name, then a text in quotes.
_ASSIGNED: Final = re.compile(rf"""\b{_NAME}["']?\]?\s{{0,20}}(?P<mark>[=:])\s{{0,20}}\(?\s{{0,20}}(?=[rbufRBUF"'])""")
# `["--key", "..."]`: an option and its value in a list of words.
_LISTED: Final = re.compile(rf"""(?<=["'])(?P<dashes>--?){_NAME_OR_LETTER}["'],\s{{1,20}}(?=[rbufRBUF"'])""")
# `setenv("WANDB_API_KEY", "...")`: a name and its value as the first two of a call.
_PASSED: Final = re.compile(rf"""\(\s{{0,20}}["']{_NAME}["'],\s{{0,20}}(?=[rbufRBUF"'])""")
# `auth=("me", "...")`, `HTTPBasicAuth("me", "...")`
_PAIR: Final = re.compile(
    r"""\b(?P<name>(?:\w{0,30}auth["']?\s{0,4}[=:]\s{0,4}|\w{1,30}Auth))\(\s{0,20}(["'])[^"'\n]{0,100}\2\s{0,4},\s{0,20}(?=["'])"""
)
# `wandb.login("...")`
_LOGIN: Final = re.compile(r"""\b(?P<name>login|authenticate)\(\s{0,20}(?=["'])""")
# What is judged of a value is its beginning; what is hidden is all of it.
_IN_QUOTES: Final = re.compile(
    r"""[rbufRBUF]{0,2}(?P<quote>\"{3}|'{3}|["'])(?P<value>(?:\\.|(?!(?P=quote))[^\\\n]){3,500})""", re.DOTALL
)
_REST: Final = {
    quote: re.compile(rf"(?:\\.|(?!{quote})[^\\{end}])*", re.DOTALL)
    for quote, end in (('"', r"\n"), ("'", r"\n"), ('"""', ""), ("'''", ""))
}
# `password=hunter2` of a message, `--token hunter2` of a command line in it: up to a blank.
_PLAINLY: Final = re.compile(
    rf"(?<![\w\-.])(?P<dashes>--?|)(?P<kind>(?:api|access|auth|private|secret) |){_NAME_OR_LETTER}"
    r"(?P<mark>=|: | (?=[^\s\-]))",
    re.IGNORECASE,
)
_UP_TO_A_BLANK: Final = re.compile(r"""(?P<value>[^\s"'&,;(){}\[\]]{3,500})""")
_REST_UP_TO_A_BLANK: Final = re.compile(r"""[^\s"'&,;(){}\[\]]*""")
# `?sig=...&` of an address.
_QUERY: Final = re.compile(r"[?&;](?P<name>[A-Za-z][\w\-.]{0,60})=")
_PARAMETER: Final = re.compile(r"""(?P<value>[^\s"'&;#<>]{3,500})""")
_REST_OF_PARAMETER: Final = re.compile(r"""[^\s"'&;#<>]*""")


def redact(text: str) -> str:
    """The text of a message, without what looks like a secret in it."""
    if len(text) < 4:
        return text
    text = redact_source(text)
    return (
        _without(text, _PLAINLY, _UP_TO_A_BLANK, _REST_UP_TO_A_BLANK, _plain_is_secret)
        if may_name_secrets(text)
        else text
    )


def redact_source(text: str) -> str:
    """Lines of source: only texts in quotes are taken for values, since `password=password` gives nothing away."""
    text = hide_forms(text)
    if not may_name_secrets(text):
        return text
    for before, is_one in _QUOTED_VALUES:
        text = _without(text, before, _IN_QUOTES, _REST, is_one)
    return _without(text, _QUERY, _PARAMETER, _REST_OF_PARAMETER, _parameter_is_secret)


def redact_value(name: str, value: str) -> str:
    """The value of a variable or a field."""
    return HIDDEN if value and is_secret(name) and not is_plain(value) else redact(value)


def redact_arguments(arguments: Sequence[str]) -> list[str]:
    """The words of a command line: `--token X`, `--token=X`, `token=X`, `--login me:X`, `-p X` lose their values."""
    words: list[str] = []
    option = ""  # whose value the next word may be
    for word in arguments:
        name, mark, value = word.partition("=")
        if option and not is_flag(word) and _argument_is_secret(option, word):
            words.append(HIDDEN)
            option = ""
            continue
        if mark and _argument_is_secret(name, value):
            words.append(f"{name}={HIDDEN}")
        elif word.startswith("-p") and is_mixed(word[2:]) and not is_flag(word):  # `-phunter2`, not `-precision`
            words.append(f"-p{HIDDEN}")
        else:
            words.append(redact(word))
        option = word if not mark and is_option(word) else ""
    return words


def redact_json(value: Any, name: str = "") -> Any:
    """A value of JSON, with all texts in it; `name` is the field that holds it."""
    if isinstance(value, str):
        return redact_value(name, value)
    if isinstance(value, Mapping):
        return {key: redact_json(each, str(key)) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [redact_json(each, name) for each in value]
    return value


def redact_note(name: str) -> str:
    """An operator's name; in a mark of ours, `anymps::<what> {"fact": value}`, the facts quote the user's source."""
    what, mark, facts = name.partition(" ")
    if not what.startswith("anymps::") or not facts.startswith("{"):
        return name
    try:
        return f"{what}{mark}{json.dumps(redact_json(json.loads(facts)), sort_keys=True)}"
    except (ValueError, RecursionError):
        return name


def _argument_is_secret(name: str, value: str) -> bool:
    if is_secret(name):
        return not is_plain(value)
    if name == "-p" or may_be_secret(name):
        return not is_ordinary(value)
    return is_login(name, value)


def _assigned_is_secret(found: re.Match[str], value: str) -> bool:
    name = found["name"]
    if is_secret(name) or (name.lower().endswith("pass") and may_be_secret(name)):
        return not is_plain(value)
    return may_be_secret(name) and looks_random(value)


def _listed_is_secret(found: re.Match[str], value: str) -> bool:
    name = f"{found['dashes']}{found['name']}"
    return not is_flag(value) and not names_secret(value) and _argument_is_secret(name, value)


def _passed_is_secret(found: re.Match[str], value: str) -> bool:
    return is_secret(found["name"]) and not is_plain(value) and not names_secret(value)


_QUOTED_VALUES: Final = (
    (_ASSIGNED, _assigned_is_secret),
    (_LISTED, _listed_is_secret),
    (_PASSED, _passed_is_secret),
    (_PAIR, lambda _, value: not is_plain(value)),
    (_LOGIN, lambda _, value: looks_random(value)),
)


def _plain_is_secret(found: re.Match[str], value: str) -> bool:
    name, mark, option = found["name"], found["mark"], f"{found['dashes']}{found['name']}"
    if found["kind"]:  # "invalid API key: hunter2"
        return mark == ": " and is_secret(f"{found['kind']}{name}") and is_mixed(value)
    if mark == " ":  # "--token hunter2", but "the --token option" and "usage: train.py --token TOKEN"
        return bool(found["dashes"]) and _argument_is_secret(option, value) and (is_mixed(value) or ":" in value)
    if mark == ": " and not found["dashes"] and name.lower() in ("token", "pass", "cookie"):
        return looks_random(value)  # "Unknown token: foo"
    return _assigned_is_secret(found, value)


def _parameter_is_secret(found: re.Match[str], value: str) -> bool:
    name = found["name"]
    return not is_plain(value) if is_secret(name) else may_be_secret(name) and not is_ordinary(value)


def _without(
    text: str,
    before: re.Pattern[str],
    value: re.Pattern[str],
    rest: re.Pattern[str] | Mapping[str, re.Pattern[str]],
    is_one: Callable[[re.Match[str], str], bool],
) -> str:
    """The text without the values, behind what `before` finds, that `is_one` says are secrets.

    `rest`, one for each kind of quote or one for all, finds what of a value goes beyond `value`.
    """
    pieces, at = [], 0
    for head in before.finditer(text):
        found = value.match(text, head.end()) if head.start() >= at else None
        if found is not None and is_one(head, found["value"]):
            pieces += [text[at : found.start("value")], HIDDEN]
            pattern = rest if isinstance(rest, re.Pattern) else rest[found["quote"]]
            tail = pattern.match(text, found.end("value"))
            at = tail.end() if tail is not None else found.end("value")
    return "".join([*pieces, text[at:]])
