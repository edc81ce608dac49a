"""What looks like a secret gets into no recording, and so into no report."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from anymps.commands import main
from anymps.findings import find
from anymps.record import Recording, RecordingBuilder, RecordingWriter, RefusalKind
from anymps.record._redact import redact, redact_arguments, redact_source
from anymps.report import FORMATS, renderer

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
        # What only looks alike.
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
    for part in ("a.", "a:", "a=", "x://", "sk-", "eyJa.", "'", "password='"):
        text = part * 20_000
        assert len(redact(text)) <= len(text) + 3


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        ("login(token='hunter2')  # me", "login(token='***')  # me"),
        ('os.environ["WANDB_API_KEY"] = "0123abcd"', 'os.environ["WANDB_API_KEY"] = "***"'),
        ("login(token=token, password=args.password)", "login(token=token, password=args.password)"),
        ("tokenizer.pad_token = '<pad>'", "tokenizer.pad_token = '<pad>'"),
        ("x = keys['abc']", "x = keys['abc']"),
    ],
)
def test_lines_of_source(line: str, kept: str) -> None:
    """Only texts in quotes are values."""
    assert redact_source(line) == kept


def test_arguments() -> None:
    """Names of options hide the word after them, or what follows their `=`."""
    words = [
        "--token", "hunter2", "--api-key=hunter2", "--hubToken", "hunter2", "password=hunter2", "--secret", "--push",
        "--db", "postgres://me:hunter2@db/x", "--tokenizer", "gpt2", "--max-new-tokens", "5", "--pad-token", "<pad>",
        "--key", "a", "--use-auth-token", "true",
    ]  # fmt: skip
    assert redact_arguments(words) == [
        "--token", "***", "--api-key=***", "--hubToken", "***", "password=***", "--secret", "--push",
        "--db", "postgres://***@db/x", "--tokenizer", "gpt2", "--max-new-tokens", "5", "--pad-token", "<pad>",
        "--key", "a", "--use-auth-token", "true",
    ]  # fmt: skip


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
        reports = ["".join(renderer(form).pieces(recording, find(recording))) for form in FORMATS]
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
