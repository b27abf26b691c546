"""The command line: a light dispatch; each group of verbs is imported when one of them is used."""

from __future__ import annotations

import os
import sys

FAST = ("tag", "await-tag")  # agents call them all the time: for them nothing else is imported


def program() -> None:
    """Be a process of its own. After a fast verb it ends at once: Python would only tidy up, a sixth of the time."""
    code = main()
    if sys.argv[1:2] and sys.argv[1] in FAST:
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def main(argv: list[str] | None = None) -> int:
    """Run one verb; the exit code says how it ended."""
    words = list(sys.argv[1:] if argv is None else argv)
    if sys.stderr is None:  # closed: what is meant for it must not get among the output
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115 - until the process ends
    if sys.stdout is None:
        print("error: standard output is closed; send it to a file, or to /dev/null", file=sys.stderr)
        return 2
    try:
        code = _dispatch(words)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader has seen enough. Without this Python complains when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return 130
    except SystemExit as end:  # argparse has printed the help
        return end.code if isinstance(end.code, int) else 0
    return code


def _dispatch(words: list[str]) -> int:
    if words and words[0] in FAST:
        from baton.cli import fast

        if (code := fast.run(words)) is not None:
            return code
    from baton.cli import overview, verbs

    first = _leading(words)
    given = words[len(first) :]
    if not given or given[0] in {"-h", "--help", "help"}:
        return overview.help_on(given[1:], asked=bool(given))
    if given[0] == "--version":
        from baton import __version__

        print(f"baton {__version__}")
        return 0
    name = verbs.named(given)
    if name is None:
        return overview.unknown(given, as_json="--json" in words)
    rest = [*first, *verbs.after(name, given)]
    if name == "demo":
        from baton.cli import demo

        return demo.main(rest)
    from baton.cli.call import run

    return run(name, rest)


def _leading(words: list[str]) -> list[str]:
    """The options that stand before the verb: they belong to every verb."""
    at = 0
    while at < len(words) and (words[at] in {"--json", "--store"} or words[at].startswith("--store=")):
        at += 2 if words[at] == "--store" else 1
    return words[:at]
