"""No spelling of a path leaves its root."""

import posixpath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from baton.errors import Malformed
from baton.protocol.artifacts import inside

ROOTS = ["/srv/work", "/srv/more/"]
DOTS = [
    "..",
    "．．",
    "․․",
    "‥",
    ".．",
    "。。",
    "%2e%2e",
    "%2E.",
    "..%00",
    ".\u200d.",
    ".\u00ad.",
    "\u202e..",
    "…",
    "...",
    ".. ",
    " ..",
    ". .",
    "..\t",
]
SLASHES = ["/", "//", "\\", "／", "∕", "⁄", "⧸", "＼", "%2f", "%5c", "\\\\"]
FORMS = ["{d}{s}etc{s}passwd", "a{s}{d}{s}{d}{s}etc", "a{s}b{s}{d}", "{d}"]
CLIMBING = sorted({form.format(d=d, s=s) for form in FORMS for d in DOTS for s in SLASHES})
FOREIGN = [
    "/etc/passwd", "//etc/passwd", "///etc/passwd", "/srv", "/srv/", "/srv/workx", "/srv/work/../secret",
    "/srv/wor",
    "/proc/self/root/etc/passwd", "/proc/self/cwd/x", "/dev/fd/3", "/dev/stdin", "/SRV/WORK/x", "/srv/mor",
    "/",
    "//server/share/x", "\\\\server\\share\\x", "\\\\?\\C:\\x", "//?/C:/x", "//./pipe/x", "C:\\x", "C:/x",
    "C:x", "c:",
    "file:/etc/passwd", "file:///etc/passwd", "file://localhost/etc", "FILE:/etc", "fiLe:x", "http://h/x",
    "https:x",
    "data:text/plain,x", "javascript:x", "ssh://h/x", "git+ssh://h/x", "s3://b/x", "jar:file:/x!/y",
    "x-y.z+1:w",
    "~", "~/x", "~root/x", "~/../etc", "", " ", " a", "a ", "a/ b", "a /b", "a/b ", "\u3000a", "a\u00a0",
    "a\0b", "a\0/../../etc/passwd", "\0", "a\nb", "a\rb", "a\tb", "a\x1b[2Jb", "a\x7f", "a\x85b", "\u2028",
    "\ufeffa",
    "a\u200bb", "a\u2066b", "a\ud800b", "\ue000", "a%2e", "%7e/x", "%00", "%252e%252e/x", "..%c0%af", "a%",
    "．", "／etc／passwd", "∕etc", "Ｃ：／x", "ｆｉｌｅ：／／x", "～/x",
    "a／．．／b", "℀/x", "½℅", "a﹨b", "a∖b", "a‥b",
    "x" * 1025, "a/" * 600, "...", "a/.../b", "....", "a/. /b",
]  # fmt: skip


def test_there_are_enough_cases():
    assert len(CLIMBING) + len(FOREIGN) >= 500


def passes(path):
    try:
        return inside(path, ROOTS)
    except Malformed as error:
        return not (str(error).startswith("artifact path ") and str(error).isprintable())


def test_hostile_paths_are_refused():
    assert [path for path in {*CLIMBING, *FOREIGN} if passes(path)] == []


@pytest.mark.parametrize("path", [None, 5, b"a", ["a"], object()])
def test_what_is_not_text_is_refused(path):
    with pytest.raises(Malformed):
        inside(path, ROOTS)


@pytest.mark.parametrize(
    ("path", "clean"),
    [
        ("a", "a"),
        ("./a", "a"),
        ("a/./b//c/", "a/b/c"),
        ("a.b/.hidden/x..y", "a.b/.hidden/x..y"),
        ("größe/日本語/naïve file.md", "größe/日本語/naïve file.md"),
        ("/srv/work/a", "/srv/work/a"),
        ("/srv/work", "/srv/work"),
        ("/srv/more/a/./b", "/srv/more/a/b"),
        ("-rf", "-rf"),
        ("notes (2).md", "notes (2).md"),
    ],
)
def test_plain_paths_pass_and_are_normalised(path, clean):
    assert inside(path, ROOTS) == clean


def test_an_absolute_path_needs_a_root():
    with pytest.raises(Malformed, match="every root"):
        inside("/srv/work/a", [])
    assert inside("/anything", ["/"]) == "/anything"


@given(st.text(st.sampled_from("./\\~:% a．／‥\0\u200d\u202eÅé"), max_size=12) | st.text(max_size=12))
def test_whatever_passes_stays_inside(path):
    try:
        clean = inside(path, ROOTS)
    except Malformed:
        return
    joined = posixpath.normpath(posixpath.join(ROOTS[0], clean))
    assert any(joined == root or joined.startswith(root + "/") for root in ("/srv/work", "/srv/more"))
    assert inside(clean, ROOTS) == clean
