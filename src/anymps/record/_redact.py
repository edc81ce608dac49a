"""What looks like a secret is not recorded: by the name of an option, a variable or a field, or by its own form.

Arguments, variables, exception texts and lines of source go into recordings and from there into reports, which people
hand on. The forms are those that the services publish for their keys; the names are those that programs give them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

HIDDEN: Final = "***"
"""What stands in the place of a secret."""

# Names by their words: `--hub-token`, `OPENAI_API_KEY`, `dbPassword`.
_SECRET: Final = frozenset(
    {"apikey", "apitoken", "authtoken", "accesskey", "credential", "credentials", "passphrase", "passwd", "password",
     "passwort", "privatekey", "pwd", "secret", "secretkey", "secrets", "token"}
)  # fmt: skip
_SECRET_KEYS: Final = frozenset({"access", "account", "api", "auth", "encryption", "private", "secret", "service"})
# Of language models: `--pad-token`, `eos_token`.
_VOCABULARY: Final = frozenset(
    {"added", "bos", "cls", "eos", "image", "mask", "max", "new", "num", "pad", "per", "sep", "special", "unk"}
)
_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")

_FORMS: Final = re.compile(
    r"""
      (?P<pem>-----BEGIN\ [A-Z0-9\ ]*(?:PRIVATE\ KEY|CERTIFICATE)[A-Z\ ]*-----.*?(?:-----END\ [A-Z0-9\ ]+-----|\Z))
    | (?P<scheme>\b[A-Za-z][A-Za-z0-9+.\-]{0,30}://)[^\s/?\#'"<>]{1,500}@   # https://user:pass@host
    | (?P<word>\b(?:Bearer|Basic)\s+)[A-Za-z0-9_\-.~+/=]{16,}              # RFC 6750, RFC 7617
    | (?P<key>\b(?:
          hf_(?:[A-Za-z0-9]{30,}|(?=[a-z]{0,60}[A-Z0-9])[A-Za-z0-9]{16,})        # Hugging Face
        | (?:gh[pousr]_|github_pat_)[A-Za-z0-9_]{16,}                      # GitHub
        | glpat-[A-Za-z0-9_\-]{16,}                                        # GitLab
        | sk-(?:[A-Za-z0-9]{16,}|(?=[A-Za-z_\-]{0,60}\d)[A-Za-z0-9_\-]{16,})    # OpenAI, Anthropic
        | [rs]k_(?:live|test)_[A-Za-z0-9]{16,}                             # Stripe
        | (?:AKIA|ASIA)[A-Z0-9]{16}                                        # AWS
        | AIza[A-Za-z0-9_\-]{30,}                                          # Google
        | xox[abeoprs]-[A-Za-z0-9\-]{10,}                                  # Slack
        | (?:pypi|npm|dckr_pat)[-_][A-Za-z0-9_\-]{20,}
        | eyJ[A-Za-z0-9_\-]{8,}\.eyJ[A-Za-z0-9_\-]{8,}\.[A-Za-z0-9_\-]*    # JSON web token, RFC 7519
      )(?![A-Za-z0-9]))
    """,
    re.VERBOSE | re.DOTALL,
)
_NAME: Final = r"\b(?P<name>[A-Za-z_][\w\-]{1,60})"
# `password="..."`, `"api_key": "..."`: a name, then a text in quotes.
_BEFORE_QUOTED: Final = re.compile(rf"""{_NAME}["']?\]?\s{{0,20}}(?P<mark>[=:])\s{{0,20}}[rbuRBU]?(?=["'])""")
_IN_QUOTES: Final = re.compile(r"""(?P<quote>["'])(?P<value>[^"'\n]{3,})(?P=quote)""")
# `password=hunter2` of a message or an option: up to a blank.
_BEFORE_PLAIN: Final = re.compile(rf"{_NAME}(?P<mark>=|:\ )")
_UP_TO_A_BLANK: Final = re.compile(r"""(?P<value>[^\s"'&,;(){}\[\]]{3,})""")


def redact(text: str) -> str:
    """The text of a message, without what looks like a secret in it."""
    if len(text) < 4:
        return text
    return _by_name(redact_source(text), _BEFORE_PLAIN, _UP_TO_A_BLANK)


def redact_source(text: str) -> str:
    """Lines of source: only texts in quotes are taken for values, since `password=password` gives nothing away."""
    return _by_name(_FORMS.sub(_by_form, text), _BEFORE_QUOTED, _IN_QUOTES) if text else text


def redact_value(name: str, value: str) -> str:
    """The value of a variable or a field."""
    return HIDDEN if value and is_secret(name) and not _is_plain(value) else redact(value)


def redact_arguments(arguments: Sequence[str]) -> list[str]:
    """The words of a command line: `--token X`, `--token=X` and `token=X` lose their values."""
    words: list[str] = []
    hide = False
    for word in arguments:
        name, mark, value = word.partition("=")
        if hide and not (word.startswith("-") and is_option(word)) and not _is_plain(word):
            words.append(HIDDEN)
        elif mark and is_secret(name) and not _is_plain(value):
            words.append(f"{name}={HIDDEN}")
        else:
            words.append(redact(word))
        hide = not mark and is_option(word) and is_secret(word)
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


def is_option(word: str) -> bool:
    """Whether a word of a command line is the name of an option."""
    return re.fullmatch(r"--?[A-Za-z][\w\-.]*", word) is not None


def is_secret(name: str) -> bool:
    """Whether a name is one that programs give to secrets."""
    words = [word.lower() for word in _WORD.findall(name)]
    for number, word in enumerate(words):
        before = words[number - 1] if number else ""
        if word == "key" and before in _SECRET_KEYS:
            return True
        if word in _SECRET and not (word == "token" and _VOCABULARY & set(words)):
            return word != "token" or words[number + 1 :] not in (["id"], ["ids"], ["type"], ["count"])
    return False


def _is_plain(value: str) -> bool:
    """Whether a value says nothing: a truth, a small number, a place for a value."""
    return value.lower() in ("", "0", "1", "true", "false", "none", "null", "yes", "no", HIDDEN)


def _by_form(found: re.Match[str]) -> str:
    if found["scheme"]:
        return f"{found['scheme']}{HIDDEN}@"
    return f"{found['word'] or ''}{HIDDEN}"


def _by_name(text: str, before: re.Pattern[str], value: re.Pattern[str]) -> str:
    """The text without the values that follow the names of secrets."""
    pieces, at = [], 0
    for head in before.finditer(text):
        of_language = head["name"].lower() == "token" and head["mark"] == ": "  # "Unknown token: foo"
        if head.start() < at or of_language or not is_secret(head["name"]):
            continue
        found = value.match(text, head.end())
        if found is not None and not _is_plain(found["value"]):
            pieces += [text[at : found.start("value")], HIDDEN]
            at = found.end("value")
    return "".join([*pieces, text[at:]])
