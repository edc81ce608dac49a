"""What looks like a secret gets into no recording, and so into no report."""

from __future__ import annotations

import hashlib
import re
import sqlite3
import uuid
from contextlib import closing
from pathlib import Path
from typing import Any

import _pytest
import pytest
from detect_secrets.core.plugins.util import get_mapping_from_secret_type_to_class
from detect_secrets.plugins.base import RegexBasedDetector
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from anymps._settings import FORMATS
from anymps.commands import main
from anymps.findings import Story, find
from anymps.record import Recording, RecordingBuilder, RecordingWriter, RefusalKind
from anymps.record._redact import redact, redact_arguments, redact_source
from anymps.record._secret_forms import HIDDEN, hide_forms
from anymps.report import report_pieces

PEM = "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXk\nAAAAB3NzaC1\n-----END OPENSSH PRIVATE KEY-----"
WEB = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dozjgNryP4J3jVmNHl0w5N"


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("clone https://me:hunter2@host/x failed", "clone https://***@host/x failed"),
        ("https://oauth2token@host/x", "https://***@host/x"),
        ("hf_AbCdEfGhIjKlMnOpQrStUvWxYz012345", "***"),
        ("401 for ghp_0123456789abcdefghijABCDEFGHIJ456789.", "401 for ***."),
        ("github_pat_11ABCDEFG0123456789_abcdefghijklmnop", "***"),
        ("key sk-proj-abcDEF0123456789ghijKLMN and more", "key *** and more"),
        ("AKIAIOSFODNN7EXAMPLE", "***"),
        ("AIzaSyA0123456789abcdefghijklmnopqrstuv", "***"),
        ("Authorization: Bearer abcdefghij0123456789", "Authorization: Bearer ***"),
        (f"got {WEB}", "got ***"),
        (f"a\n{PEM}\nb", "a\n***\nb"),
        ("login failed, password=hunter2, user=me", "login failed, password=***, user=me"),
        ("tokens: password=hunter2", "tokens: password=***"),
        ("wrong password: hunter2", "wrong password: ***"),
        ("{'client_secret': 'a b c', 'x': 'y'}", "{'client_secret': '***', 'x': 'y'}"),
        (
            "GET https://x.blob.core.windows.net/c?sv=2022&sig=abc%2Fdef%3D&se=1",
            "GET https://x.blob.core.windows.net/c?sv=2022&sig=***&se=1",
        ),
        (
            "for url: https://cdn/x?Expires=1&Signature=abc~d&Key-Pair-Id=K1",
            "for url: https://cdn/x?Expires=1&Signature=***&Key-Pair-Id=K1",
        ),
        ("GET /x?key=hunter2&page=3", "GET /x?key=***&page=3"),
        ("Cookie: sid=hunter2; theme=dark", "Cookie: ***"),
        ("{'set-cookie': 'sid=hunter2; Path=/', 'age': '3'}", "{'set-cookie': '***', 'age': '3'}"),
        ("authorization: Token hunter2", "authorization: Token ***"),
        ("Authorization: AWS4-HMAC-SHA256 Credential=A/b, Signature=01", "Authorization: AWS4-HMAC-SHA256 ***"),
        ("POST https://hooks.slack.com/services/T0/B0/abcdef: 404", "POST https://hooks.slack.com/*** 404"),
        ("POST https://discord.com/api/v10/webhooks/12/ab-cd 404", "POST https://discord.com/api/v10/webhooks/*** 404"),
        ("POST https://me.webhook.office.com/webhookb2/a@b/c 404", "POST https://me.webhook.office.com/*** 404"),
        ("Command '['x', '--key', 'hunter2']' failed", "Command '['x', '--key', '***']' failed"),
        (
            "Command '['curl', '-u', 'me:hunter2', '-p', 'abc1']' failed",
            "Command '['curl', '-u', '***', '-p', '***']' failed",
        ),
        ("unrecognized arguments: --wandb-key hunter2 -x", "unrecognized arguments: --wandb-key *** -x"),
        ("invalid API key: hunter2", "invalid API key: ***"),
        ("AccountName=me;AccountKey=ab+/c==;Suffix=x", "AccountName=me;AccountKey=***;Suffix=x"),
        ("MIIEowIBAAKCAQEA0\nAAAAB3NzaC1yc2EAAA\n-----END RSA PRIVATE KEY-----", "***"),
        # What only looks alike.
        ("commit 14eacd9b20b9d40827abfb3322bb1b5cd27aaaa1", "commit 14eacd9b20b9d40827abfb3322bb1b5cd27aaaa1"),
        ("sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4", "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4"),
        (
            "Qwen/Qwen2.5-VL-72B-Instruct, meta-llama/Llama-3.1-8B",
            "Qwen/Qwen2.5-VL-72B-Instruct, meta-llama/Llama-3.1-8B",
        ),
        ("/data/sk-learn-pipeline-v2/task-0123456789abcdef01", "/data/sk-learn-pipeline-v2/task-0123456789abcdef01"),
        ("Unexpected key(s): h.10.attn.key.weight", "Unexpected key(s): h.10.attn.key.weight"),
        ("pass: 3 tests, cookie: you win", "pass: 3 tests, cookie: you win"),
        ("usage: train.py [--token TOKEN] [--key KEY]", "usage: train.py [--token TOKEN] [--key KEY]"),
        ("the --token argument is deprecated", "the --token argument is deprecated"),
        ("Authorization: denied", "Authorization: denied"),
        ("GET /x?key=3&pass=2&signature=true", "GET /x?key=3&pass=2&signature=true"),
        (
            "img_token=<img>, token_dropout=0.1, token_file=a.txt",
            "img_token=<img>, token_dropout=0.1, token_file=a.txt",
        ),
        ("Unknown token: foo", "Unknown token: foo"),
        ("max_new_tokens=512, pad_token=<pad>, token_id=17", "max_new_tokens=512, pad_token=<pad>, token_id=17"),
        ("sk_learn_something_long_name, hf_transformers_model", "sk_learn_something_long_name, hf_transformers_model"),
        ("http://host:8080/a@b, git@host:a/b.git", "http://host:8080/a@b, git@host:a/b.git"),
        ("KeyError: 'token'", "KeyError: 'token'"),
        ("sparse_key = 3, keys: [1]", "sparse_key = 3, keys: [1]"),
    ],
)
def test_messages(text: str, kept: str) -> None:
    """By form anywhere, by name before `=` and `:`. What is left out once is left out for good."""
    assert redact(text) == kept
    assert redact(kept) == kept


def test_a_long_text_takes_no_long_time() -> None:
    """Every pattern looks a bounded way ahead."""
    for part in ("a.", "a:", "a=", "x://", "sk-", "eyJa.", "'", "password='", "key=a", "A1+/", "key ", "?a=", "-p "):
        text = part * 10_000
        assert len(redact(text)) <= len(text) + 3


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        ("login(token='hunter2')  # me", "login(token='***')  # me"),
        ('os.environ["WANDB_API_KEY"] = "0123abcd"', 'os.environ["WANDB_API_KEY"] = "***"'),
        ("login(token=token, password=args.password)", "login(token=token, password=args.password)"),
        ("tokenizer.pad_token = '<pad>'", "tokenizer.pad_token = '<pad>'"),
        ("x = keys['abc']", "x = keys['abc']"),
        ('wandb.login(key="0123456789abcdef0123456789abcdef01234567")', 'wandb.login(key="***")'),
        ('wandb.login("0123456789abcdef0123456789abcdef01234567")', 'wandb.login("***")'),
        ('run(["wandb", "login", "--key", "hunter2"])', 'run(["wandb", "login", "--key", "***"])'),
        ('os.environ.setdefault("WANDB_API_KEY", "0123")', 'os.environ.setdefault("WANDB_API_KEY", "***")'),
        ("get(url, auth=('me', 'hunter2'))", "get(url, auth=('me', '***'))"),
        ("HTTPBasicAuth('me', 'hunter2')", "HTTPBasicAuth('me', '***')"),
        ('password = "it\'s \\"me\\""', 'password = "***"'),
        ('password = """hunter2"""', 'password = """***"""'),
        ('password=(\n    "hunter2")', 'password=(\n    "***")'),
        ('headers = {"Cookie": "sid=hunter2"}', 'headers = {"Cookie": "***"}'),
        # What only looks alike.
        (
            'parser.add_argument("--password", "-p", default="x")',
            'parser.add_argument("--password", "-p", default="x")',
        ),
        ('@click.option("--api-key", "api_key")', '@click.option("--api-key", "api_key")'),
        ('sorted(rows, key="loss"), d["key"]', 'sorted(rows, key="loss"), d["key"]'),
        ('cache_key = "14eacd9b20b9d40827abfb33"', 'cache_key = "14eacd9b20b9d40827abfb33"'),
        ('key = f"layers.{i}.attn.weight"', 'key = f"layers.{i}.attn.weight"'),
    ],
)
def test_lines_of_source(line: str, kept: str) -> None:
    """Only texts in quotes are values."""
    assert redact_source(line) == kept


@pytest.mark.parametrize(
    ("words", "kept"),
    [
        ("--token hunter2 --api-key=hunter2 --hubToken hunter2", "--token *** --api-key=*** --hubToken ***"),
        ("password=hunter2 wandb.key=hunter2", "password=*** wandb.key=***"),
        ("--wandb-key 0123456789abcdef0123456789abcdef01234567", "--wandb-key ***"),
        ("--key hunter2 --auth basic --pass swordfish --db-pass=x-y", "--key *** --auth *** --pass *** --db-pass=***"),
        ("--login me:hunter2 -u me:hunter2 --user=me:hunter2", "--login *** -u *** --user=***"),
        ("-p hunter2 -phunter2", "-p *** -p***"),
        ("--password -Xy9!a --token -a1b2c3 --key --Q7x", "--password *** --token *** --key ***"),
        ("--secret --push --use-auth-token --fp16 -v", "--secret --push --use-auth-token --fp16 -v"),
        ("--db postgres://me:hunter2@db/x", "--db postgres://***@db/x"),
        ("-H Cookie:sid=hunter2 --hook https://hooks.slack.com/services/T0/B0/ab", "-H Cookie:sid=*** --hook https://hooks.slack.com/***"),
        ("--webhook-url https://host/x", "--webhook-url ***"),
        # What only looks alike.
        ("--tokenizer gpt2 --max-tokens 5 --pad-token <pad>", "--tokenizer gpt2 --max-tokens 5 --pad-token <pad>"),
        ("--key a --key 3 --use-auth-token true", "--key a --key 3 --use-auth-token true"),
        ("--image-key image --sort_key loss --passes 3", "--image-key image --sort_key loss --passes 3"),
        ("--token-dropout 0.1 --token-file ~/.hf", "--token-dropout 0.1 --token-file ~/.hf"),
        ("--key /home/me/key.pem -p ./data -p 8080 -p16", "--key /home/me/key.pem -p ./data -p 8080 -p16"),
        ("--login me --user 1000:1000 -precision 16", "--login me --user 1000:1000 -precision 16"),
        ("--proxy-u me:1000 --user me:1000", "--proxy-u me:1000 --user ***"),  # of an id, or of a password
        ("--revision 14eacd9b20b9d40827abfb3322bb1b5cd27aaaa1", "--revision 14eacd9b20b9d40827abfb3322bb1b5cd27aaaa1"),
        ("--num-key-value-heads 8 --token -- x", "--num-key-value-heads 8 --token -- x"),
    ],
)  # fmt: skip
def test_arguments(words: str, kept: str) -> None:
    """Names of options hide the word after them, or what follows their `=`, unless it plainly is no secret."""
    assert redact_arguments(words.split()) == kept.split()


# Rules of detect-secrets that need a name beside the key, or that fit ordinary words (`APPLICATION`).
_NOT_FORMS = {
    "Artifactory Credentials", "Cloudant Credentials", "IBM Cloud IAM Key", "IBM COS HMAC Credentials", "NPM tokens",
    "Public IP (ipv4)", "SoftLayer Credentials",
}  # fmt: skip
_PRINTED = st.characters(min_codepoint=32, max_codepoint=126, exclude_characters="\"'")
_FRAMES = {"Basic Auth Credentials": "https{}", "Private Key": "-----{}-----"}


def _rules() -> list[Any]:
    """The rules of detect-secrets that tell a secret by its form: `(detector, pattern)`."""
    classes: dict[str, Any] = get_mapping_from_secret_type_to_class()
    detectors = [found() for found in classes.values()]
    return [
        pytest.param(detector, rule, id=f"{detector.secret_type} {number}")
        for detector in detectors
        if isinstance(detector, RegexBasedDetector) and detector.secret_type not in _NOT_FORMS
        for number, rule in enumerate(detector.denylist)
        if "secret_keyword" not in rule.pattern and not rule.pattern.startswith("aws")
    ]


@pytest.mark.parametrize(("detector", "rule"), _rules())
@settings(max_examples=5, derandomize=True, database=None, deadline=None, phases=[Phase.generate])
@given(data=st.data())
def test_what_detect_secrets_finds(detector: Any, rule: re.Pattern[str], data: st.DataObject) -> None:
    """What fits a rule of a list that others keep is not in the text any more; "one or more" is a dozen, as in keys."""
    pattern = re.sub(r"(?<=[\])d])[+*]\??", "{12}", rule.pattern)
    key = data.draw(st.from_regex(re.compile(pattern, re.ASCII), fullmatch=True, alphabet=_PRINTED))
    text = f"got {_FRAMES.get(detector.secret_type, '{}').format(key)} here"
    text = text.replace("-----BEGIN SSH2 ENCRYPTED PRIVATE KEY-----", "---- BEGIN SSH2 ENCRYPTED PRIVATE KEY ----")
    text = text.replace("-----PuTTY-User-Key-File-2-----", f"{key}: ssh-rsa")
    left = redact(text)
    assert HIDDEN in left
    assert rule.search(left) is None


def test_what_only_looks_like_a_key() -> None:
    """No service's key is found in a library's own code, in hashes and in names of models."""
    text = "\n".join(path.read_text(encoding="utf-8") for path in sorted(Path(_pytest.__file__).parent.glob("*.py")))
    hashes = [new(b"x").hexdigest() for new in (hashlib.md5, hashlib.sha1, hashlib.sha256, hashlib.sha512)]
    names = ["google/gemma-3-27b-it", "black-forest-labs/FLUX.1-dev", "sk-learn-wrapper-v12", "checkpoint-12000"]
    text = "\n".join([text, *hashes, *names, str(uuid.UUID(int=1 << 100))])
    assert len(text) > 500_000
    assert hide_forms(text) == text


def test_no_part_of_a_recording_holds_a_secret(tmp_path: Path) -> None:
    """Arguments, variables, the last exception, messages, details, source: neither in the file nor in any report."""
    meta = {
        "arguments": ["--password", "hunter2", "https://me:hunter2@host"],
        "environment": {"ANYMPS_TOKEN": "hunter2", "PYTORCH_X": "a"},
        "ending": {"status": 1, "exception": "OSError", "message": "password=hunter2"},
    }
    builder = RecordingBuilder(RecordingWriter(tmp_path / "run", meta))
    source = "x = load(x, token='hunter2')"
    site = builder.site("/p/a.py", 2, "main", source, text=f"password = 'hunter2'\n{source}\n")
    builder.refusal(
        RefusalKind.DTYPE, "TypeError", "no: password=hunter2", operator="aten::mm", start_ns=0, site=site, origin=site,
        detail={"expression": "load(secret='hunter2')", "name": "x"},
    )  # fmt: skip
    builder.note("born", start_ns=1, site=site, expression='load(token="hunter2")', generator=False)
    builder.close().close()
    assert b"hunter2" not in (tmp_path / "run").read_bytes()
    with Recording.open(tmp_path / "run") as recording:
        reports = ["".join(report_pieces(form, Story.of(recording), find(recording))) for form in FORMATS]
        assert recording.meta["arguments"] == ["--password", "***", "https://***@host"]
    assert not any("hunter2" in report for report in reports)


@pytest.mark.usefixtures("virtual_device")
@pytest.mark.parametrize(("options", "kept"), [([], ["--name", "anna"]), (["--no-arguments"], [])])
def test_a_run_without_arguments(tmp_path: Path, options: list[str], kept: list[str]) -> None:
    """`--no-arguments` leaves them out; the script has them all the same."""
    script, path = tmp_path / "train.py", tmp_path / "run"
    script.write_text("import sys\nassert sys.argv[1:] == ['--name', 'anna']\n")
    words = ["run", "--allow-unused", *options, "--record", str(path), "--no-report", str(script), "--name", "anna"]
    assert main(words) == 0
    with Recording.open(path) as recording:
        assert recording.meta["arguments"] == kept
    with closing(sqlite3.connect(path)) as connection:
        (words,) = connection.execute("SELECT value FROM meta WHERE key = 'arguments'").fetchone()
    assert ("anna" in words) is bool(kept)
