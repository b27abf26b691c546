"""Secrets are masked, everything else stays, and the common case costs next to nothing."""

from __future__ import annotations

import argparse
import ast
import asyncio.base_events
import base64
import configparser
import email.message
import hashlib
import http.client
import http.cookiejar
import inspect
import json
import logging.handlers
import random
import re
import smtplib
import string
import tarfile
import textwrap
import time
import tokenize
import typing
import urllib.request
import uuid
from collections.abc import Callable
from pathlib import Path
from pydoc_data import topics
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from baton.protocol import secrets
from baton.protocol.secrets import KINDS, known, redact, redact_bytes, redact_value

# Planted secrets are put together at run time: no scanner may find one in this file.
DIGITS, HEX = string.digits, "0123456789abcdef"
B62 = string.ascii_letters + DIGITS
B64U, B64 = B62 + "-_", B62 + "+/"


def pick(rng: random.Random, alphabet: str, size: int) -> str:
    return "".join(rng.choice(alphabet) for _ in range(size))


def pem(rng: random.Random, label: str = "") -> str:
    rule = "-" * 5
    lines = "\n".join(pick(rng, B64, 64) for _ in range(6))
    return f"{rule}BEGIN {label}PRIVATE KEY{rule}\n{lines}\n{rule}END {label}PRIVATE KEY{rule}"


def encrypted_pem(rng: random.Random) -> str:
    head = f"Proc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,{pick(rng, '0123456789ABCDEF', 32)}\n\n"
    return pem(rng, "RSA ").replace("\n", f"\n{head}", 1)


def pgp(rng: random.Random) -> str:
    block = pem(rng, "PGP ").replace("KEY-", "KEY BLOCK-")
    return block.replace("\n", "\nVersion: GnuPG v2.0-beta\n\n", 1)


def jwt(rng: random.Random) -> str:
    parts = [{"alg": "HS256", "typ": "JWT"}, {"sub": pick(rng, DIGITS, 9), "iat": rng.randrange(10**9)}]
    head = [base64.urlsafe_b64encode(json.dumps(p).encode()).decode().rstrip("=") for p in parts]
    return ".".join([*head, pick(rng, B64U, 43)])


def joined(*parts: str) -> str:
    return "".join(parts)


Make = Callable[[random.Random], str | tuple[str, str]]

# kind -> what to plant; a pair is (text, the part that must vanish).
MAKERS: dict[str, Make] = {
    "aws-access": lambda r: joined("AK", "IA", pick(r, string.ascii_uppercase + "234567", 16)),
    "aws-secret": lambda r: (joined("aws_secret_access", "_key = ", s := pick(r, B64, 40)), s),
    "github": lambda r: joined("gh", r.choice("pousr"), "_", pick(r, B62, 36)),
    "github-pat": lambda r: joined("github", "_pat_", pick(r, B62, 22), "_", pick(r, B62, 59)),
    "gitlab": lambda r: joined("glp", "at-", pick(r, B64U, 20)),
    "slack-bot": lambda r: joined("xo", "xb-", pick(r, DIGITS, 12), "-", pick(r, DIGITS, 12), "-", pick(r, B62, 24)),
    "slack-user": lambda r: joined("xo", "xp-", pick(r, DIGITS, 11), "-", pick(r, DIGITS, 11), "-", pick(r, HEX, 32)),
    "slack-hook": lambda r: (
        joined(
            "https://hooks.sl",
            "ack.com/services/T0",
            s := joined(pick(r, B62, 8), "/B0AB12CD3/", pick(r, B62, 24)),
        ),
        s,
    ),
    "anthropic": lambda r: joined("sk-", "ant-api03-", pick(r, B64U, 93), "AA"),
    "openai": lambda r: joined("sk", "-", pick(r, B62, 48)),
    "openai-proj": lambda r: joined("sk-", "proj-", pick(r, B64U, 74)),
    "google": lambda r: joined("AI", "za", pick(r, B64U, 35)),
    "google-oauth": lambda r: joined("ya", "29.", pick(r, B64U, 64)),
    "gcp-account": lambda r: joined('"private_key": "', pem(r).replace("\n", "\\n"), '"'),
    "azure": lambda r: (joined("Account", "Key=", s := pick(r, B64, 86) + "=="), s),
    "stripe": lambda r: joined(r.choice("sr"), "k_li", "ve_", pick(r, B62, 24)),
    "twilio": lambda r: joined("S", "K", pick(r, HEX, 32)),
    "sendgrid": lambda r: joined("S", "G.", pick(r, B64U, 22), ".", pick(r, B64U, 43)),
    "mailgun": lambda r: joined("ke", "y-", pick(r, HEX, 32)),
    "npm": lambda r: joined("np", "m_", pick(r, B62, 36)),
    "pypi": lambda r: joined("py", "pi-AgEIcHlwaS5vcmc", pick(r, B64U, 80)),
    "huggingface": lambda r: joined("h", "f_", pick(r, B62, 34)),
    "digitalocean": lambda r: joined("do", "p_v1_", pick(r, HEX, 64)),
    "databricks": lambda r: joined("da", "pi", pick(r, HEX, 32)),
    "shopify": lambda r: joined("shp", "at_", pick(r, HEX, 32)),
    "square": lambda r: joined("sq0", "csp-", pick(r, B64U, 43)),
    "linear": lambda r: joined("lin_", "api_", pick(r, B62, 40)),
    "notion": lambda r: joined("nt", "n_", pick(r, B62, 46)),
    "notion-old": lambda r: joined("sec", "ret_", pick(r, B62, 43)),
    "telegram": lambda r: joined(pick(r, "123456789", 10), ":A", "A", pick(r, B64U, 33)),
    "discord": lambda r: joined("M", pick(r, B62, 25), ".", pick(r, B62, 6), ".", pick(r, B64U, 38)),
    "jwt": jwt,
    "pem-encrypted": encrypted_pem,
    "pgp": pgp,
    "pem": lambda r: pem(r, r.choice(["", "RSA ", "EC ", "OPENSSH ", "ENCRYPTED "])),
    "age": lambda r: joined("AGE-SEC", "RET-KEY-1", pick(r, "QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L", 58)),
    "bearer": lambda r: (joined("Authorization: Bea", "rer ", s := pick(r, HEX + "ghij", 40)), s),
    "basic": lambda r: (joined("authorization: Ba", "sic ", s := pick(r, B64, 24)), s),
    "url": lambda r: (joined("https://bob:", s := pick(r, B62 + "!$.", 14), "@host.example/x"), s),
    "dsn": lambda r: (joined("postgresql+psycopg://app:", s := pick(r, B62, 12), "@db:5432/app"), s),
}


def frames(text: str) -> list[str]:
    return [
        f"While looking into it I found {text} in the notes, please rotate it.",
        f"    client = connect('{text}')  # from the old config\n    return client",
        json.dumps({"note": f"see {text}", "tokens_consumed": 12, "next": [text, None]}),
        f"2025-01-02T03:04:05Z INFO worker={uuid.uuid4()} value={text}",
        f"line one\n{text}\nline three",
        f"({text}), [{text}]; <{text}>",
    ]


def planted() -> list[tuple[str, str, str]]:
    rng = random.Random(20250102)
    cases = []
    for kind, make in MAKERS.items():
        for _ in range(4):
            made = make(rng)
            text, secret = made if isinstance(made, tuple) else (made, made)
            cases += [(kind, frame, secret) for frame in frames(text)]
    return cases


def escaped(secret: str) -> tuple[str, ...]:
    return secret, json.dumps(secret)[1:-1]


def test_recall_on_planted_secrets() -> None:
    cases = planted()
    assert len(cases) >= 500
    assert len(MAKERS) >= 25
    missed = [(k, t) for k, t, s in cases if any(form in redact(t) for form in escaped(s))]
    rate = 1 - len(missed) / len(cases)
    assert rate >= 0.99, (rate, missed[:10])


def test_recall_in_json_documents() -> None:
    missed = []
    for kind, text, secret in planted():
        document = {"id": 1, "body": {"text": text, "list": [text]}, "ok": True}
        for ascii_only in (True, False):
            clean = json.loads(redact_bytes(json.dumps(document, ensure_ascii=ascii_only).encode()))
            assert clean.keys() == document.keys()
            if secret in json.dumps(clean) or escaped(secret)[1] in clean["body"]["text"]:
                missed.append((kind, text))
    assert len(missed) <= 0.01 * 2 * len(planted()), missed[:10]


def test_many_tokens_of_each_kind_pass_the_gate() -> None:
    rng = random.Random(7)
    total = missed = 0
    for make in MAKERS.values():
        for _ in range(300):
            made = make(rng)
            text, secret = made if isinstance(made, tuple) else (made, made)
            total += 1
            missed += secret in redact(f"say {text} now")
    assert missed <= 0.005 * total


def test_surroundings_stay_as_they_are() -> None:
    rng = random.Random(3)
    token = joined("gh", "p_", pick(rng, B62, 36))
    assert redact(f"é «{token}»\r\n\ttail\x00") == "é «[redacted:github-token]»\r\n\ttail\x00"


@pytest.mark.parametrize(
    "text",
    [
        "password = hunter2hunter2",
        "PASSWD: 'Sup3rS3cret!'",
        'api_key="a8f5f167f44f4964e6c998dee827110c"',
        "secret: 9f8Kd72hsQ1mZx",
        "export API_TOKEN=k3jh4k5j6h7g8f",
        '{\\"password\\": \\"hunter2hunter2\\"}',
        "apiKey: 'q7w8e9r0t1y2'",
    ],
)
def test_assigned_values_are_masked(text: str) -> None:
    clean = redact(text)
    assert "[redacted:assigned]" in clean
    assert clean[:4] == text[:4]


@pytest.mark.parametrize(
    "text",
    [
        "token_count = 5",
        "password: str",
        "api_key=os.environ['SERVICE_KEY_2']",
        "secret = config.secret2_value.inner",
        "token = next_token2(stream)",
        "max_tokens: 4096000000",
        "tokens_consumed=123456789",
        "password = getpass.getpass()",
        "token: Optional[str] = None",
        "token = /var/lib/app/token1.txt",
        "api_key: ${SERVICE_API_KEY_1}",
        "sk-circle-fade-dot-container-large",
        "task-0123456789abcdef0123456789abcdef",
        "Basic understanding of bearer authentication-mechanisms",
        "https://example.org:8080/path?mail=a@b.example",
        "mailto:someone@host.example",
        "src/baton/protocol/secrets.py:12",
        "2025-01-02T03:04:05.678901Z",
        "fencing token: 3f2504e0-4f89-41d3-9a0c-0305e82c3301",
    ],
)
def test_harmless_text_stays(text: str) -> None:
    assert redact(text) == text
    data = json.dumps({"text": text}).encode()
    assert redact_bytes(data) is data


def test_identifiers_and_digests_stay() -> None:
    for n in range(500):
        raw = hashlib.sha256(str(n).encode())
        for value in (
            raw.hexdigest(),
            hashlib.sha1(str(n).encode(), usedforsecurity=False).hexdigest(),
            str(uuid.UUID(bytes=raw.digest()[:16])),
            base64.b64encode(raw.digest()).decode(),
            "sha256:" + raw.hexdigest(),
            "sha256-" + base64.b64encode(raw.digest()).decode(),
            f"run_{uuid.UUID(bytes=raw.digest()[:16]).hex}",
        ):
            text = f"see {value} and digest={value}"
            assert redact(text) == text
            data = json.dumps({"digest": value, "prev": value}).encode()
            assert redact_bytes(data) is data


def corpus() -> list[str]:
    modules = (argparse, ast, asyncio.base_events, configparser, email.message, http.client, http.cookiejar)
    modules += (inspect, json, logging.handlers, random, re, smtplib, tarfile, textwrap, tokenize, typing)
    modules += (urllib.request, uuid)
    return [inspect.getsource(m) for m in modules] + list(topics.topics.values())


def test_false_positives_on_code_and_prose() -> None:
    texts = corpus()
    words = sum(len(text.split()) for text in texts)
    assert words > 100_000
    hits = [line for text in texts for line in text.splitlines() if redact(line) != line]
    assert len(hits) / words < 1 / 10_000, hits


def test_values_are_masked_by_key() -> None:
    value = {
        "password": "x",
        "apiKey": "abc",
        "X-Api-Key": "abc",
        "Authorization": "abc",
        "access_token": "abc",
        "client_secret": "abc",
        "Set-Cookie": "a=b",
        "privateKey": "abc",
        "token": 5,
        "tokens_consumed": 12,
        "max_tokens": "4000",
        "token_count": "5",
        "fencing_token": "run-7",
        "secret": "",
        "nested": [{"db_password": "p"}, "plain", None, 1.5, True],
    }
    clean = redact_value(value)
    assert list(clean) == list(value)
    masked = {k for k, v in clean.items() if v == "[redacted:key]"}
    assert masked == {
        *("password", "apiKey", "X-Api-Key", "Authorization", "access_token", "client_secret"),
        *("Set-Cookie", "privateKey"),
    }
    assert clean["nested"] == [{"db_password": "[redacted:key]"}, "plain", None, 1.5, True]
    assert value["password"] == "x"
    assert redact_value(clean) == clean


def test_documents_are_masked_by_key() -> None:
    data = b'{ "password" : "a b\\"c", "n": 1.50, "token":"\\u0041bc", "s":"x\\/y", "max_tokens":"1" }'
    clean = redact_bytes(data)
    mark = b'"[redacted:key]"'
    assert clean == (b'{ "password" : %b, "n": 1.50, "token":%b, "s":"x\\/y", "max_tokens":"1" }' % (mark, mark))
    assert redact_bytes(clean) == clean


def test_pem_in_a_document() -> None:
    rng = random.Random(5)
    data = json.dumps({"log": "a\n" + pem(rng) + "\nb", "q": '"\\'}).encode()
    assert json.loads(redact_bytes(data)) == {"log": "a\n[redacted:private-key]\nb", "q": '"\\'}


def test_no_group_is_repeated_possessively() -> None:
    """Python before 3.11.5 then misses what it should find; a single character may be."""
    group = re.compile(r"(?<!\\)\)(?:[*+?]|\{[0-9,]*\})\+")
    assert all(group.search(one) for one in (r"(?:a|b){2,3}+", r"(ab)*+"))
    assert not group.search(r"\)*+(a)+")
    source = Path(secrets.__file__).read_text(encoding="utf-8")
    assert not group.search(source.replace("{{", "{").replace("}}", "}"))


def test_bytes_that_are_no_document_are_masked_as_text() -> None:
    token = joined("gh", "p_", "aB3" * 12).encode()
    assert redact_bytes(b"\xff " + token + b' "open') == b'\xff [redacted:github-token] "open'


def test_known_values() -> None:
    redactor = known(['s3cr"et/é', "short", "plain words here"])
    assert redactor.redact("a plain words here b short") == "a [redacted:known] b short"
    for ascii_only in (True, False):
        data = json.dumps({"a": 's3cr"et/é', "b": 2}, ensure_ascii=ascii_only).encode()
        assert json.loads(redactor.redact_bytes(data)) == {"a": "[redacted:known]", "b": 2}
    data = b'{"a":"nothing"}'
    assert redactor.redact_bytes(data) is data
    assert redactor.redact_value(["plain words here"]) == ["[redacted:known]"]
    assert known(["redacted"]).redact("[redacted:jwt]") == "[redacted:jwt]"


SECRETS = [text for kind, text, _ in planted() if kind != "gcp-account"][::7]
TEXTS = st.lists(st.one_of(st.text(max_size=12), st.sampled_from(SECRETS)), max_size=4).map("".join)
KEYS = st.one_of(st.text(max_size=6), st.sampled_from(["password", "token", "n", "max_tokens", "cookie"]))
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), TEXTS),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(KEYS, inner, max_size=4)),
    max_leaves=8,
)


def shape(value: Any) -> Any:
    if isinstance(value, dict):
        return [shape(item) for item in value.values()]
    if isinstance(value, list):
        return [shape(item) for item in value]
    return str if isinstance(value, str) else value


@settings(max_examples=150, deadline=None)
@given(VALUES, st.booleans(), st.sampled_from([None, 1]))
def test_documents_stay_valid(value: Any, ascii_only: bool, indent: int | None) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    data = text.encode("utf-8", "surrogatepass")
    clean = redact_bytes(data)
    assert shape(json.loads(clean.decode("utf-8", "surrogatepass"))) == shape(json.loads(text))
    assert redact_bytes(clean) == clean


@settings(max_examples=300, deadline=None)
@given(VALUES, st.lists(st.text(min_size=8, max_size=12), max_size=2))
def test_one_look_at_all_texts_misses_nothing(value: Any, values: list[str]) -> None:
    redactor = known([*values, "plain words here"])
    for whole in (value, [value, SECRETS[0]], {"a": "plain words here", "b": value}):
        assert redactor.redact_value(whole) == secrets._mapped(whole, redactor.redact)


@settings(max_examples=150, deadline=None)
@given(TEXTS)
def test_masking_twice_changes_nothing(text: str) -> None:
    once = redact(text)
    assert redact(once) == once
    assert redact_value(redact_value({"token": text, "a": [text]})) == redact_value({"token": text, "a": [text]})


HOSTILE = [
    *(
        "a",
        "A",
        "eyJ",
        "eyJaaaa.eyJ",
        "eyJaaaaaaaa.",
        "-",
        "-----BEGIN PRIVATE KEY-----",
        "://",
        "://a:",
        "A://a:b@",
    ),
    *(
        "-----BEGIN PRIVATE KEY-----" + "A" * 23 + " ",
        "token=",
        "token = '",
        "TOKEN: ",
        "api_key",
        "secret_access_key=",
    ),
    *(
        "Bearer ",
        "Bearer a",
        "authorization: basic ",
        "gh" + "p_",
        "gh" + "p_" + "a" * 35 + " ",
        "sk" + "-",
        "sk-A1a_",
    ),
    *(
        "xo" + "xb-",
        "glpat" + "-",
        "hooks.slack.com/services/",
        "AIza",
        "ya29.",
        "SG.",
        "SG.aaaaaaaaaaaaaaaaaaaa.",
    ),
    *(
        "key-",
        "npm_",
        "pypi-",
        "hf_",
        "dop_v1_",
        "dapi",
        "shpat_",
        "sq0csp-",
        "EAAA",
        "lin_api_",
        "ntn_",
        "secret_",
    ),
    *(
        "123456789:AA",
        "Maaaaaaaaaaaaaaaaaaaaaaaa.",
        "M",
        "AccountKey=",
        "AccessKey=",
        "AGE-SECRET-KEY-1",
        "SK",
        "AKIA",
    ),
    *(
        "github_pat_",
        "sk_live_",
        "postgres://",
        "postgres+",
        '"',
        "\\",
        '"a" : ',
        " " * 3 + '"',
        "\\n",
        'password": "',
    ),
    *("AAAA@://", "token" + " " * 4, "a" * 64 + '"', "k0" * 8, "0" * 31 + "-"),
]


def taken(text: str) -> float:
    """Processor seconds: other programs on the machine do not count."""
    started = time.process_time()
    redact(text)
    redact_bytes(json.dumps({"a": text}).encode())
    return time.process_time() - started


@pytest.mark.parametrize("unit", HOSTILE)
def test_hostile_input_takes_linear_time(unit: str) -> None:
    text = unit * (400_000 // len(unit) + 1)
    small, large = (text[:size] + " AAAA@://" for size in (100_000, 400_000))
    assert min(taken(large), taken(large)) < 8 * taken(small) + 0.1


def record() -> bytes:
    digest = hashlib.sha256(b"a").hexdigest()
    fields = {
        "seq": 12345,
        "type": "handoff.accepted",
        "handoff_id": str(uuid.UUID(int=2**127 + 12345)),
        "at": "2025-01-02T03:04:05.678901Z",
        "prev": digest,
        "digest": digest[::-1],
        "task": "Review the parser module and report the failing cases",
        "tokens_consumed": 1234,
        "max_tokens": 4000,
        "path": "src/pkg/module.py",
        "note": "Everything else was left as it is, see the previous step. " * 3,
    }
    return json.dumps(fields, separators=(",", ":")).encode()[:598] + b'"}'


def test_a_clean_record_costs_little() -> None:
    data = record()
    assert redact_bytes(data) is data

    def cost(run: Callable[[bytes], object]) -> float:
        started = time.perf_counter()
        for _ in range(500):
            run(data)
        return time.perf_counter() - started

    ratios = []
    for _ in range(15):
        base = cost(lambda d: hashlib.sha256(d).digest())
        ratios.append(cost(redact_bytes) / base)
    assert min(ratios) <= 4, ratios


def test_kinds() -> None:
    assert len(KINDS) >= 25
    assert len(set(KINDS)) == len(KINDS)
