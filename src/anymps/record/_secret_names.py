"""Names that programs give to secrets, and what a value under such a name must look like to be one.

Some names are always a secret's (`--hub-token`, `OPENAI_API_KEY`). Others only may be (`--key`, `auth`, `-p`): on a
command line and in a query their values count as secrets unless they plainly are none, elsewhere if they look random.
"""

from __future__ import annotations

import re
from typing import Final

from anymps.record._secret_forms import HIDDEN

_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")

_SECRET: Final = frozenset(
    {"apikey", "apitoken", "authkey", "authtoken", "accesskey", "bearer", "cookie", "cookies", "credential",
     "credentials", "creds", "jwt", "passcode", "passphrase", "passwd", "password", "passwords", "passwort",
     "privatekey", "pwd", "secret", "secretkey", "secrets", "token", "webhook", "webhooks"}
)  # fmt: skip
# What a key is for or whose it is, if it is a secret.
_SECRET_KEYS: Final = frozenset(
    {"access", "account", "admin", "anthropic", "api", "app", "auth", "aws", "azure", "client", "cohere", "comet",
     "consumer", "deploy", "encryption", "gcp", "github", "gitlab", "google", "groq", "hf", "hub", "huggingface",
     "kaggle", "license", "master", "mistral", "neptune", "openai", "private", "replicate", "roboflow", "secret",
     "service", "shared", "signing", "ssh", "storage", "stripe", "subscription", "wandb"}
)  # fmt: skip
# Of language models: `--pad-token`, `eos_token`.
_VOCABULARY: Final = frozenset(
    {"added", "audio", "begin", "blank", "bos", "class", "cls", "end", "eom", "eos", "eot", "first", "image",
     "initializer", "instance", "last", "mask", "max", "new", "next", "num", "pad", "per", "placeholder", "prefix",
     "prompt", "sep", "sos", "special", "start", "stop", "suffix", "think", "trigger", "unk", "video"}
)  # fmt: skip
# A token with another word behind it is a number of tokens, a layer, a loss.
_STILL_A_TOKEN: Final = frozenset({"key", "secret", "string", "value"})
# The name of where a secret is, or a measure.
_PLACES: Final = frozenset(
    {"column", "dim", "dir", "directory", "env", "field", "file", "filename", "folder", "len", "length", "path", "size"}
)

_MAY_BE: Final = frozenset({"auth", "key", "pass", "pat", "pw", "sas", "sig", "signature"})
# `--image-key`, `sort_key`, `forward_pass`: fields of data, and passes over it.
_FIELDS: Final = frozenset(
    {"answer", "attention", "audio", "backward", "batch", "cache", "caption", "checkpoint", "chosen", "ckpt", "class",
     "color", "column", "conversation", "data", "dataset", "dict", "embedding", "eval", "feature", "features", "field",
     "first", "foreign", "forward", "group", "hash", "hot", "id", "image", "images", "index", "input", "inputs", "kv",
     "label", "labels", "lookup", "loss", "map", "mask", "message", "messages", "metric", "model", "module", "monitor",
     "num", "one", "output", "outputs", "param", "parameter", "partition", "per", "position", "primary", "prng",
     "prompt", "public", "query", "question", "random", "rejected", "response", "rng", "sample", "second", "seed",
     "single", "sort", "source", "split", "src", "state", "target", "test", "text", "tgt", "train", "two", "val",
     "valid", "value", "video"}
)  # fmt: skip

_OPTION: Final = re.compile(r"--?[A-Za-z][\w\-.]*")
# A flag, and no password that begins with a dash: one letter, or words with at most two digits behind each.
_FLAG: Final = re.compile(r"-[A-Za-z]|--[A-Za-z]{2,20}\d{0,2}(?:[-_.][A-Za-z]{1,20}\d{0,2}){0,8}")
_PLAIN: Final = frozenset({"", "0", "1", "true", "false", "none", "null", "yes", "no", HIDDEN})
_NUMBER: Final = re.compile(r"[-+]?[\d.,]+(?:e[-+]?\d+)?")
_PATH: Final = re.compile(r"[~.]{1,2}[/\\].*|/[A-Za-z]+(?:/.*)?|[A-Za-z]:\\.*|[\w\-.]+(?:/[\w\-.]+)*\.[a-z]{2,5}")
_RANDOM: Final = re.compile(r"(?=[A-Za-z+=]{0,80}\d)(?=[\d+=]{0,80}[A-Za-z])[A-Za-z\d+=]{12,}")
_USER: Final = re.compile(r"[^:\s/]{1,100}:(?![/\\])\S+")


# Every name of a secret holds one of these.
_PARTS: Final = (
    "-p", "-u", "auth", "bearer", "cookie", "cred", "jwt", "key", "login", "pass", "pat", "pw", "sas", "secret", "sig",
    "token", "webhook",
)  # fmt: skip


def may_name_secrets(text: str) -> bool:
    """Whether a name of a secret can be in a text at all; it costs little to ask."""
    lowered = text.lower()
    return any(part in lowered for part in _PARTS)


def is_option(word: str) -> bool:
    """Whether a word of a command line is the name of an option."""
    return _OPTION.fullmatch(word) is not None


def is_flag(word: str) -> bool:
    """Whether a word behind an option that takes a secret is rather the next option."""
    return word == "--" or _FLAG.fullmatch(word.partition("=")[0]) is not None


def is_secret(name: str) -> bool:
    """Whether a name is one that programs give to secrets."""
    words = _words(name)
    if not words or words[-1] in _PLACES:
        return False
    for number, word in enumerate(words):
        behind = words[number + 1 :]
        if word == "key" and number and words[number - 1] in _SECRET_KEYS and (not behind or behind[0].isdigit()):
            return True
        if word == "token":  # `hf_token` is a secret; `pad_token` and `token_id` are of a tokenizer
            if not _VOCABULARY & set(words) and all(each in _STILL_A_TOKEN or each.isdigit() for each in behind):
                return True
        elif word in _SECRET:
            return True
    return False


def may_be_secret(name: str) -> bool:
    """Whether a name is one of several things, among them a secret."""
    words = _words(name)
    return bool(words) and words[-1] in _MAY_BE and not _FIELDS & set(words)


def names_secret(value: str) -> bool:
    """Whether a text is itself the name of a secret, as in `add_option("--api-key", "api_key")`."""
    return re.fullmatch(r"[A-Za-z]+(?:_[A-Za-z]+)*", value) is not None and (is_secret(value) or may_be_secret(value))


def is_plain(value: str) -> bool:
    """Whether a value says nothing: a truth, a small number, a place for a value (`<token>`), what is left out."""
    return value.lower() in _PLAIN or (value.startswith("<") and value.endswith(">"))


def is_ordinary(value: str) -> bool:
    """Whether a value under a name that may be a secret's plainly is none: a number, a path, two letters."""
    return is_plain(value) or len(value) < 3 or _NUMBER.fullmatch(value) is not None or is_path(value)


def is_path(value: str) -> bool:
    """Whether a value is the name of a file."""
    return _PATH.fullmatch(value) is not None


def is_mixed(value: str) -> bool:
    """Whether a value has letters and digits, as passwords have and words of a sentence have not."""
    return any(map(str.isalpha, value)) and any(map(str.isdigit, value)) and not is_path(value)


def looks_random(value: str) -> bool:
    """Whether a text holds a dozen letters and digits in a row, in no order that a word has."""
    return _RANDOM.search(value) is not None


def is_login(name: str, value: str) -> bool:
    """Whether an option takes `user:password`, and its value is that: `--login me:hunter2`, `-u me:hunter2`."""
    words = _words(name)
    if not words or words[-1] not in ("login", "user", "username", "userpwd", "u") or not _USER.fullmatch(value):
        return False
    user, _, password = value.partition(":")
    return words[-1] == "login" or not password.isdigit() or not (user.isdigit() or words[-1] == "u")


def _words(name: str) -> list[str]:
    return [word.lower() for word in _WORD.findall(name)]
