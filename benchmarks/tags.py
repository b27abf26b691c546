"""Reading and editing tags: how long a file takes, that hostile text takes no longer, and no crash on mutated files.

usage: python benchmarks/tags.py [--quick | --full] [--json FILE]
"""

import argparse
import json
import random
import time
from pathlib import Path

from baton.board import tags

ROOT = Path(__file__).parents[1]
EDITS = ("added", "swapped", "removed", "escaped")
FLOODS = {  # hostile text: what it is made of, and how
    "#": lambda size: b"#" * size,
    "#a": lambda size: b"#a" * (size // 2),
    "#a,": lambda size: b"#a," * (size // 3),
    "a line of `#a `": lambda size: b"#a " * (size // 3),
    "runs of backticks of every length": lambda size: b" ".join(b"`" * n for n in range(1, int((2 * size) ** 0.5))),
    "`": lambda size: b"`" * size,
    "\\`": lambda size: b"\\`" * (size // 2),
    "\\": lambda size: b"\\" * size + b"`",
    "` ``": lambda size: b"` `` " * (size // 5),
    "<!--": lambda size: b"<!--" * (size // 4),
    "<!-- in lines": lambda size: b"<!--\n" * (size // 5),
    "a <!-- in lines": lambda size: b"a <!--\n" * (size // 7),
    "-->": lambda size: b"<!--" + b"-- >" * (size // 4),
    "<pre>": lambda size: b"<pre>\n" * (size // 6),
    ">": lambda size: b">" * size,
    "> in lines": lambda size: (b">" * 99 + b"\n") * (size // 100),
    "lists in lists": lambda size: b"- " * (size // 2) + b"a",
    "lists in lists, then blank lines": lambda size: b"- " * 50 + b"a" + b"\n" * size,
    "lists ever deeper": lambda size: b"".join(b" " * (2 * n) + b"- a\n" for n in range(int(size**0.5))),
    "quotes and lists in turn": lambda size: (b"> - " * 16 + b"a\n") * (size // 66),
    "fences": lambda size: b"```\n~~~\n" * (size // 8),
    "open fence": lambda size: b"```\n" + b"`` `\n" * (size // 5),
    "spaces": lambda size: b" " * size + b"#a",
    "tabs": lambda size: b"\t" * size + b"#a",
    "blank lines": lambda size: b"\n" * size,
    "_ _": lambda size: b"_ " * (size // 2) + b"a",
    "digits": lambda size: b"1" * size,
    "[a]: #a": lambda size: b"[a]: #a\n" * (size // 8),
    "](": lambda size: b"](" * (size // 2) + b" " * 100 + b"#a",
    "http://a,#a": lambda size: b"http://a" + b",#a" * (size // 3),
    "**Tags**:": lambda size: b"`a\n" + b"**Tags**: #a\n" * (size // 13),
    "**Tags**: ` in one line": lambda size: b"**Tags**: #a `b` " * (size // 17),
    "bytes that are no text": lambda size: b"\xff#a\xe2\x80" * (size // 5),
    "--- and no end": lambda size: b"---\n" + b"a: b\n" * (size // 5),
}
PIECES = [
    b"**Tags**: #needs-fix #P1\n", b"#needs-fix", b" #done-fix ", b"`", b"``", b"```\n", b"\n```\n", b"~~~\n", b"<!--",
    b"-->", b"> ", b"- ", b"1. ", b"    ", b"\t", b"\r\n", b"\r", b"\n", b"\n\n", b"# T\n", b"\n===\n", b"---\n", b"\\",
    b"<pre>", b"\xff", b"\0", b"\xef\xbb\xbf", b"](", b"]:", b"https://",
]  # fmt: skip


def files():
    """What is mutated: 250 bytes each of pages that people wrote, with a Tags line, and with work in the middle."""
    head, item = b"# T\n**Tags**: #needs-fix #P1\n\n", b" #needs-docs #S "
    pages = [path.read_bytes() for path in sorted((ROOT / "docs").glob("**/*.md"))]
    pieces = [page[at : at + 250] for page in pages for at in range(0, len(page), 250)]
    return [head + piece[:100] + item + piece[100:] for piece in pieces]


def mutated(data, chance):
    """The same after some bytes went missing, came twice, changed, or came in between."""
    for _ in range(chance.randint(1, 8)):
        at = chance.randrange(len(data) + 1)
        end = min(len(data), at + chance.randint(0, 40))
        kind = chance.randrange(4)
        if kind == 0:
            data = data[:at] + data[end:]
        elif kind == 1:
            data = data[:end] + data[at:]
        elif kind == 2:
            data = data[:at] + bytes([chance.randrange(256)]) + data[at + 1 :]
        else:
            data = data[:at] + chance.choice(PIECES) + data[at:]
    return data


def edited(data, chance, replaced=tags.replaced):
    """Read a text and do each edit of it; how many edits there were, by kind. What must hold is asserted."""
    text = tags.Text(data)
    own, inline = text.own(), [tag for tag in text.tags if tag.inline]
    done = dict.fromkeys(EDITS, 0)
    after = tags.Text(tags.added(data, "needs-docs"))
    assert [tag.name for tag in after.own()][-1:] == ["needs-docs"] or "needs-docs" in [tag.name for tag in own], data
    assert shown(after, inline=True) == shown(text, inline=True), data
    done["added"] += 1
    for place in (own, inline):
        if place:
            one = chance.choice(place)
            rest = [(tag.name, tag.inline) for tag in text.tags if tag is not one]
            after = replaced(data, [one], ["claimed-new"])
            assert data[: one.start] + b"#claimed-new" + data[one.end :] == after, data
            assert sorted([*rest, ("claimed-new", one.inline)]) == sorted(shown(tags.Text(after))), data
            assert rest == shown(tags.Text(replaced(data, [one], []))), data
            done["swapped"] += 1
            done["removed"] += 1
    if inline:
        after = tags.escaped(data, inline)
        assert shown(tags.Text(after)) == shown(text, inline=False), data
        assert after.replace(b"`", b"") == data.replace(b"`", b""), data
        done["escaped"] += 1
    return done


def shown(text, *, inline=None):
    return [(tag.name, tag.inline) for tag in text.tags if inline is None or tag.inline is inline]


def attack(count, seed=0, replaced=tags.replaced):
    """Mutate so many files and edit each; how many edits there were. An editor that breaks one is named with it."""
    chance, pages = random.Random(seed), files()
    total = dict.fromkeys(EDITS, 0)
    for _ in range(count):
        data = mutated(chance.choice(pages), chance)
        try:
            done = edited(data, chance, replaced)
        except Exception as error:
            error.add_note(repr(data))
            raise
        for name, number in done.items():
            total[name] += number
    return total


def best(work, rounds=5):
    """Seconds of processor time, the least of several rounds."""
    taken = []
    for _ in range(rounds):
        began = time.process_time()
        work()
        taken.append(time.process_time() - began)
    return min(taken)


def change(data):
    """Read a text and do each edit of it."""
    text = tags.Text(data)
    tags.added(data, "needs-docs")
    tags.replaced(data, text.own()[:50] or text.tags[:50], [])
    tags.escaped(data, text.tags)


def growth(name, size, work=change, rounds=3):
    """How many times as long a byte takes when the text is four times as long."""
    small, large = FLOODS[name](size), FLOODS[name](4 * size)
    per_byte = [best(lambda data=data: work(data), rounds) / len(data) for data in (small, large)]
    return {"ratio": per_byte[1] / per_byte[0], "ns_per_byte": per_byte[1] * 1e9, "bytes": len(large)}


def typical():
    """Microseconds for a page of 8 kB that people wrote: to read it, and to swap a tag in it."""
    page = (ROOT / "docs" / "explanation" / "architecture.md").read_bytes()
    data = tags.added(page[:8192], "needs-fix")
    own = tags.Text(data).own()
    return {
        "read_us": best(lambda: tags.Text(data), 200) * 1e6,
        "swap_us": best(lambda: tags.replaced(data, own, ["delegated-fix"]), 200) * 1e6,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="1,000 mutated files")
    parser.add_argument("--full", action="store_true", help="1,000,000 mutated files; lines of 1 MB")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    count, size = (1_000, 16_384) if options.quick else (1_000_000, 262_144) if options.full else (20_000, 65_536)
    figures = {"page": typical(), "floods": {name: growth(name, size) for name in FLOODS}}
    print("a page of 8 kB: read {read_us:.0f} µs, swap {swap_us:.0f} µs".format(**figures["page"]))
    print(f"{'hostile text':36} {'kB':>6} {'ns a byte':>10} {'× at 4 times the size':>22}")
    for name, one in figures["floods"].items():
        print(f"{name:36} {one['bytes'] / 1000:6.0f} {one['ns_per_byte']:10.1f} {one['ratio']:22.2f}")
    figures["mutated"] = {"files": count, **attack(count)}
    print("mutated files, crashes 0:", ", ".join(f"{number:,} {name}" for name, number in figures["mutated"].items()))
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
