"""Finding and masking secrets in text, JSON documents and values."""

from __future__ import annotations

import json
import math
import re
import string
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

__all__ = ["KINDS", "Redactor", "known", "redact", "redact_bytes", "redact_value", "suspicious"]

MIN_KNOWN = 8
_MAX_PASSES = 4

# --------------------------------------------------------------------------- gate
#
# Almost no record holds a secret, so one cheap test decides whether the rules run at all. It is built from
# whole-buffer primitives (translate, rfind), because a regex over the same bytes costs several times as much:
#   skeleton  only the letters that tell the key words apart, capitals as "A", separators as ":"
#   capitals  the skeleton without lower-case letters: random base62/base64 shows a run of capitals
#   hexes     a class per byte: a 32-digit hex token glued to a prefix (dapi..., SK..., key-...)
# A bare digest, a UUID, a timestamp or a snake_case name passes none of them.


def _table(default: str, classes: dict[str, str]) -> bytes:
    table = bytearray(default.encode() * 256)
    for chars, target in classes.items():
        for char in chars.encode():
            table[char] = ord(target)
    return bytes(table)


_KEPT = "kencrtyswd@"
_SKELETON = _table(":", {string.ascii_uppercase: "A", **{c: c for c in _KEPT}, "K": "k", "y": "n"})
_BREAKS = " \t\r\n:=,&;|"
_DROPPED = bytes(b for b in range(256) if chr(b) not in _KEPT + string.ascii_uppercase + _BREAKS)
_LOWER = _KEPT.encode()
_HEXES = _table(" ", {"iK_-": "x", string.digits + "abcdef": "h", **{c: c for c in "glpt"}})
_HEX_TOKEN = b"x" + b"h" * 32
_GITLAB = b"glphtx"  # "glpat-": too short to be sure of its capitals


def suspicious(data: bytes) -> bool:
    """Whether a secret may be in there; where not, nothing else needs to look."""
    words = data.translate(_SKELETON, _DROPPED)
    hexes = data.translate(_HEXES)
    # rfind looks for the first byte of its needle, find and "in" for the last: here that halves the time.
    return (
        words.rfind(b"ken:") >= 0  # token, and key
        or words.rfind(b"cret:") >= 0
        or words.rfind(b"ssw") >= 0
        or words.rfind(b"erer:") >= 0
        or words.translate(None, _LOWER).rfind(b"AAAA") >= 0
        or hexes.rfind(_HEX_TOKEN) >= 0
        or hexes.rfind(_GITLAB) >= 0
        or (words.rfind(b"@") >= 0 and b"://" in data)
    )


# --------------------------------------------------------------------------- predicates

_DIGEST = re.compile(r"(?i)(?:[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}|[0-9a-f]{32}|[0-9a-f]{40}|[0-9a-f]{64})\Z")
_CODE = re.compile(r"[A-Za-z_]\w*(?:(?:\.|::|->)[A-Za-z_]\w*)+\Z")
_PATH = re.compile(r"(?:[~.]{0,2}/|[A-Za-z]:[\\/]|[a-z]{2,10}://)")
_TIME = re.compile(r"\d{4}-\d\d-\d\d")
_PLACEHOLDER = re.compile(
    r"\[redacted:|\$[{(]|\$[A-Z_]+\Z|%[({]|[{<*]|(?i:x{4}|(?:your|my)[_-]|example|changeme|(?:none|null|true|false)\Z)"
)


def _entropy(value: str) -> float:
    size = len(value)
    return -sum(n / size * math.log2(n / size) for n in Counter(value).values())


def _classes(value: str) -> int:
    tests = (str.isdigit, str.islower, str.isupper)
    return sum(any(test(c) for c in value) for test in tests)


def _mixed(match: re.Match[str]) -> bool:
    return _classes(match[0]) == 3


def _any_digit(match: re.Match[str]) -> bool:
    return any(c.isdigit() for c in match[0])


def _has_digit(match: re.Match[str]) -> bool:
    return any(c.isdigit() for c in match[2])


def _real_password(match: re.Match[str]) -> bool:
    return not _PLACEHOLDER.match(match[2])


def _plausible(match: re.Match[str]) -> bool:
    value = match[2]
    if match.string.startswith(("(", "["), match.end()):
        return False
    if any(p.match(value) for p in (_PLACEHOLDER, _PATH, _TIME, _CODE)) or (
        match[1][:3].lower() == "ken" and _DIGEST.match(value)
    ):
        return False
    digits = any(c.isdigit() for c in value)
    letters = any(c.isalpha() for c in value)
    return digits and letters and _entropy(value) >= 2.5


# --------------------------------------------------------------------------- rules

# A token starts at a boundary; an escape such as \n in a dumped string counts as one.
_B = r"(?:(?<![A-Za-z0-9])|(?<=\\[nrt]))"
_RUN = r"(?:(?<![A-Za-z0-9_-])|(?<=\\[nrt]))"
_SEP = r"""\\?["']?\s{0,4}(?:=>|:=|[=:])\s{0,4}\\?["']?"""
_USERINFO = r"""://[^\s:/?#@"'<>\\\[\]]{0,128}:)([^\s/?#@"'<>\\]{1,256})(?=@)"""
_DATABASES = r"postgres(?:ql)?|mysql|mariadb|mongodb|rediss?|amqps?|mssql|clickhouse|cockroachdb|oracle"
_PEM_BEGIN = r"-----BEGIN [A-Z0-9 ]{0,30}PRIVATE KEY(?: BLOCK)?-----"
# Only single characters are repeated possessively here: groups are got wrong by Python before 3.11.5.
_PEM_LINES = r"[^-]{0,100}(?:-(?!----)[^-]{0,100}){0,8}[A-Za-z0-9+/=]{24}"
_PEM_END = r"[^-]{0,20000}+(?:-(?!----)[^-]{0,20000}+){0,200}-----END [A-Z0-9 ]{0,30}PRIVATE KEY(?: BLOCK)?-----"
_PEM_CUT = r"(?:\s|\\[rn])*[A-Za-z0-9+/=]{24,}+(?:(?:\s|\\[rn])+[A-Za-z0-9+/=]{16,}+)*"
_VALUE = r"""([^\s"'`,;<>(){}\[\]\\&|]{8,256}+)"""
# Each word is entered at a rare letter, and what stands before it is looked up behind: the search skips fast.
_BEFORE_KEY = "|".join(
    f"(?<={name}{dash}k)"
    for name in ("api", "access", "account", "auth", "private", "signing", "encryption")
    for dash in ("", "[_-]")
)
_WORDS = (
    r"[KkCcWw](?i:(?<=passw)(?:or)?d|(?<=sec)ret(?:[_-]?key)?|(?<=tok)en"
    rf"|(?:{_BEFORE_KEY})ey)"
)

Test = Callable[[re.Match[str]], bool]

# (kind, literals of which one must be present, pattern, further test); group 1, if any, is kept.
_SPEC: tuple[tuple[str, tuple[str, ...], str, Test | None], ...] = (
    (
        "private-key",
        ("PRIVATE KEY",),
        rf"{_PEM_BEGIN}(?:(?={_PEM_LINES}){_PEM_END}|{_PEM_CUT})",
        None,
    ),
    ("age-key", ("AGE-SECRET-KEY-1",), r"AGE-SECRET-KEY-1[0-9A-Z]{58}", None),
    ("jwt", ("eyJ",), _RUN + r"eyJ[A-Za-z0-9_-]{8,}+\.eyJ[A-Za-z0-9_-]{4,}+\.[A-Za-z0-9_-]{8,}+", None),
    ("aws-access-key", ("AKIA", "ASIA"), _B + r"A(?:KIA|SIA)[A-Z0-9]{16}(?![A-Za-z0-9])", None),
    (
        "aws-secret-key",
        ("secret",),
        rf"(?i)((?:secret_?access_?key|aws_?secret(?:_?key)?){_SEP})([A-Za-z0-9/+]{{40}})(?![A-Za-z0-9/+=])",
        None,
    ),
    ("github-token", ("gh",), r"gh[pousr]_[A-Za-z0-9]{36,255}", None),
    ("github-pat", ("github_pat_",), r"github_pat_[A-Za-z0-9]{22}_[A-Za-z0-9]{59}", None),
    ("gitlab-token", ("glpat-",), r"glpat-[A-Za-z0-9_-]{20,64}", None),
    ("slack-token", ("xox",), r"xox[abeoprs]-[A-Za-z0-9-]{20,255}", _any_digit),
    (
        "slack-webhook",
        ("hooks.slack.com",),
        r"(hooks\.slack\.com/(?:services|workflows|triggers)/)([A-Za-z0-9_/-]{20,255})",
        None,
    ),
    ("anthropic-key", ("sk-ant-",), _RUN + r"sk-ant-[A-Za-z0-9_-]{20,255}+", None),
    ("openai-key", ("sk-",), _RUN + r"sk-(?:proj-|svcacct-|admin-)?[A-Za-z0-9_-]{20,255}+", _mixed),
    ("google-api-key", ("AIza",), _B + r"AIza[A-Za-z0-9_-]{35}", None),
    ("google-oauth", ("ya29.",), _B + r"ya29\.[A-Za-z0-9_-]{20,}+", None),
    ("azure-storage-key", ("AccountKey=",), r"(AccountKey=)([A-Za-z0-9+/]{86}==)", None),
    ("azure-shared-key", ("AccessKey=",), r"(SharedAccessKey=)([A-Za-z0-9+/]{43}=)", None),
    ("stripe-key", ("k_live_", "k_test_"), _B + r"[sr]k_(?:live|test)_[A-Za-z0-9]{16,255}", None),
    ("twilio-key", ("SK",), _B + r"SK[0-9a-f]{32}(?![A-Za-z0-9])", None),
    ("sendgrid-key", ("SG.",), _B + r"SG\.[A-Za-z0-9_-]{16,32}\.[A-Za-z0-9_-]{16,64}", None),
    ("mailgun-key", ("key-",), _B + r"key-[0-9a-f]{32}(?![A-Za-z0-9])", None),
    ("npm-token", ("npm_",), _B + r"npm_[A-Za-z0-9]{36}(?![A-Za-z0-9])", None),
    ("pypi-token", ("pypi-",), _RUN + r"pypi-[A-Za-z0-9_-]{50,}+", _mixed),
    ("huggingface-token", ("hf_",), _B + r"hf_[A-Za-z0-9]{34,40}(?![A-Za-z0-9])", _mixed),
    ("digitalocean-token", ("_v1_",), _B + r"do[opr]_v1_[0-9a-f]{64}(?![A-Za-z0-9])", None),
    ("databricks-token", ("dapi",), _B + r"dapi[0-9a-f]{32}(?:-\d)?(?![A-Za-z0-9])", None),
    ("shopify-token", ("shp",), _B + r"shp(?:at|ca|pa|ss)_[0-9a-fA-F]{32}(?![A-Za-z0-9])", None),
    ("square-token", ("sq0",), _B + r"sq0(?:atp|csp)-[A-Za-z0-9_-]{22,43}", None),
    ("square-token", ("EAAA",), _B + r"EAAA[A-Za-z0-9_-]{60}", _mixed),
    ("linear-key", ("lin_api_",), r"lin_api_[A-Za-z0-9]{40}", None),
    ("notion-token", ("ntn_",), _B + r"ntn_[A-Za-z0-9]{40,50}(?![A-Za-z0-9])", _mixed),
    ("notion-token", ("secret_",), _B + r"secret_[A-Za-z0-9]{43}(?![A-Za-z0-9])", _mixed),
    ("telegram-token", (":AA",), r"(?<![0-9])[0-9]{8,10}:AA[A-Za-z0-9_-]{33}(?![A-Za-z0-9_-])", None),
    (
        "discord-token",
        (".",),
        r"[MNO](?<![A-Za-z0-9_-].)[A-Za-z0-9_-]{23,27}\.[A-Za-z0-9_-]{6,7}\.[A-Za-z0-9_-]{27,38}(?![A-Za-z0-9_-])",
        _mixed,
    ),
    (
        "authorization",
        ("authorization",),
        rf"(?i)(authorization{_SEP}(?:basic|token|bearer|digest|apikey)\s{{1,4}})([A-Za-z0-9._~+/=-]{{8,4096}}+)",
        None,
    ),
    ("bearer", ("bearer",), r"(?i)(\bbearer\s{1,4})([A-Za-z0-9._~+/=-]{16,4096}+)", _has_digit),
    ("dsn-password", ("://",), rf"(?i)((?:{_DATABASES})(?:\+[a-z0-9]{{1,16}})?{_USERINFO}", _real_password),
    ("url-password", ("://",), rf"({_USERINFO}", _real_password),
    (
        "assigned",
        ("password", "passwd", "secret", "token", "key"),
        rf"({_WORDS}{_SEP}){_VALUE}",
        _plausible,
    ),
)

_Rule = tuple[str, tuple[str, ...], bool, re.Pattern[str], Test | None]
_RULES: tuple[_Rule, ...] = tuple(
    (kind, anchors, "(?i" in pattern, re.compile(pattern), test) for kind, anchors, pattern, test in _SPEC
)
KINDS: tuple[str, ...] = (*dict.fromkeys(rule[0] for rule in _RULES), "key", "known")

# --------------------------------------------------------------------------- key names

_SENSITIVE = (
    "password",
    "passwd",
    "passphrase",
    "secret",
    "token",
    "apikey",
    "accesskey",
    "secretkey",
    "privatekey",
    "accountkey",
    "authorization",
    "cookie",
)
# These tokens position or guard work; they give no access.
_HARMLESS = re.compile(r"(?:fencing|page|next|continuation|cursor|sync|stop|eos|bos|pad|unk|mask)token\Z")
_KEYED = re.compile(r""""([A-Za-z_. -]{1,64})"\s{0,8}:\s{0,8}"(?!"|\[redacted:key\]")""")
_LITERAL = re.compile(r'(?s)"[^"\\]*+(?:\\.[^"\\]*+)*"')
_COLON = re.compile(r"\s*+:\s*+(?=\")")


def _sensitive(key: str) -> bool:
    name = key.lower().replace("_", "").replace("-", "").replace(".", "").replace(" ", "")
    return name.endswith(_SENSITIVE) and not _HARMLESS.search(name)


# --------------------------------------------------------------------------- redaction


def _hits(text: str, lowered: str) -> Iterable[_Rule]:
    for rule in _RULES:
        hay = lowered if rule[2] else text
        for anchor in rule[1]:
            if anchor in hay:
                yield rule
                break


def _found(text: str) -> bool:
    if any(_sensitive(key) for key in _KEYED.findall(text)):
        return True
    for _, _, _, pattern, test in _hits(text, text.lower()):
        for match in pattern.finditer(text):
            if test is None or test(match):
                return True
    return False


def _mask(text: str, rule: _Rule) -> str:
    kind, _, _, pattern, test = rule
    marker = f"[redacted:{kind}]"

    def replace(match: re.Match[str]) -> str:
        if test is not None and not test(match):
            return match[0]
        return (match[1] + marker) if pattern.groups else marker

    return pattern.sub(replace, text)


def _mapped(value: Any, redact: Callable[[str], str]) -> Any:
    """A copy with every string as `redact` gives it, but for those whose key says enough."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, dict):
        result: dict[Any, Any] = {}
        for key, item in value.items():
            name = redact(key) if isinstance(key, str) else key
            while name in result:
                name = f"{name}*"
            hidden = isinstance(item, str) and item and isinstance(key, str) and _sensitive(key)
            result[name] = "[redacted:key]" if hidden else _mapped(item, redact)
        return result
    if isinstance(value, (list, tuple)):
        return type(value)([_mapped(item, redact) for item in value])
    return value


class Redactor:
    """Masks every known kind of secret, and the literal values it was given."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        markers = [f"[redacted:{kind}]" for kind in KINDS]
        kept = {v for v in values if len(v) >= MIN_KNOWN and not any(v in m for m in markers)}
        self._values = tuple(sorted(kept, key=lambda v: (-len(v), v)))
        dumped = (json.dumps(v, ensure_ascii=flag)[1:-1] for v in self._values for flag in (True, False))
        forms = {*self._values, *dumped}
        self._needles = tuple(sorted(form.encode("utf-8", "surrogatepass") for form in forms))

    def redact(self, text: str) -> str:
        """Return the text with each secret replaced by `[redacted:<kind>]`."""
        data = text.encode("utf-8", "surrogatepass")
        if not (self._needles and self._listed(data)) and not suspicious(data):
            return text
        return self._scrub(text)

    def redact_bytes(self, data: bytes) -> bytes:
        """Return an encoded JSON document without its secrets; the same object when there were none."""
        if not (self._needles and self._listed(data)) and not suspicious(data):
            return data
        text = data.decode("utf-8", "surrogateescape")
        # Without escapes the document shows its strings as they are, so one look at the whole is enough.
        if b"\\" not in data and not self._listed(data) and not _found(text):
            return data
        try:
            json.loads(text, parse_int=str, parse_float=str)
        except (ValueError, RecursionError):
            clean = self._scrub(text)
        else:
            clean = self._scrub_document(text)
        return data if clean == text else clean.encode("utf-8", "surrogateescape")

    def redact_value(self, value: Any) -> Any:
        """Return a copy of a JSON-like value without secrets, also judging strings by their key."""
        texts: dict[str, str] = {}
        copied = _mapped(value, lambda text: texts.setdefault(text, text))
        # What is suspicious in one text is so in all of them together: one look at the whole is enough.
        data = "\n".join(texts).encode("utf-8", "surrogatepass")
        return _mapped(value, self.redact) if self._listed(data) or suspicious(data) else copied

    def _listed(self, data: bytes) -> bool:
        return any(needle in data for needle in self._needles)

    def _scrub(self, text: str) -> str:
        # A replacement can uncover a neighbour, so repeat until nothing changes.
        for _ in range(_MAX_PASSES):
            before = text
            for value in self._values:
                text = text.replace(value, "[redacted:known]")
            for rule in _hits(text, text.lower()):
                text = _mask(text, rule)
            if text == before:
                break
        return text

    def _scrub_document(self, text: str) -> str:
        parts: list[str] = []
        done = 0
        hide = False
        for match in _LITERAL.finditer(text):
            literal = match[0]
            value = json.loads(literal)
            if hide and value:
                clean = "[redacted:key]"
                hide = False
            else:
                clean = self._scrub(value)
                hide = _COLON.match(text, match.end()) is not None and _sensitive(value)
            if clean != value:
                parts += (text[done : match.start()], json.dumps(clean, ensure_ascii="\\u" in literal))
                done = match.end()
        parts.append(text[done:])
        return "".join(parts)


_DEFAULT = Redactor()


def known(values: Iterable[str]) -> Redactor:
    """Return a redactor that also masks these literal values (at least 8 characters each)."""
    return Redactor(values)


def redact(text: str) -> str:
    """Return the text with each secret replaced by `[redacted:<kind>]`."""
    return _DEFAULT.redact(text)


def redact_bytes(data: bytes) -> bytes:
    """Return an encoded JSON document without its secrets; the same object when there were none."""
    if not suspicious(data):
        return data
    return _DEFAULT.redact_bytes(data)


def redact_value(value: Any) -> Any:
    """Return a copy of a JSON-like value without secrets, also judging strings by their key."""
    return _DEFAULT.redact_value(value)
