"""What a person sees who does not know the verb yet."""

from __future__ import annotations

import sys

from baton.cli.verbs import GROUPS, VERBS, named


def help_on(words: list[str], *, asked: bool) -> int:
    """Print the help of a verb, or the overview."""
    name = named(words) if words else None
    if name == "demo":
        from baton.cli import demo

        return demo.main(["--help"])
    if name is not None:
        from baton.cli.call import run

        return run(name, ["--help"])
    if words:
        return unknown(words, as_json=False)
    print("baton hands work from one agent to another: claimed once, in budget, approved, audited, recovered.\n")
    for heading, group in GROUPS.items():
        print(heading)
        for verb, (_, what) in group.items():
            print(f"  {verb:<18} {what}")
        print()
    print(
        "baton VERB --help explains a verb with an example. Every verb takes --json, those about a store --store URL."
    )
    if not asked:
        print("New here? Try: baton demo")
    return 0


def unknown(words: list[str], *, as_json: bool) -> int:
    """Say what was probably meant, or what the group has."""
    from difflib import get_close_matches

    group = [verb for verb in VERBS if verb.startswith(f"{words[0]} ")]
    asks_help = len(words) > 1 and words[1] in {"-h", "--help"}
    if group and (len(words) == 1 or words[1].startswith("-")):
        stream = sys.stdout if asks_help else sys.stderr
        for verb in group:
            print(f"  baton {verb:<16} {VERBS[verb][1]}", file=stream)
        return 0 if asks_help else 2
    typed = " ".join(words[:2]) if group else words[0]
    ending = [verb for verb in VERBS if verb.endswith(f" {words[0]}")]
    close = ending or get_close_matches(" ".join(words[:2]), VERBS, n=1) or get_close_matches(words[0], VERBS, n=1)
    meant = " or ".join(f"`baton {verb}`" for verb in close)
    known = f"did you mean {meant}?" if close else "`baton --help` lists the verbs"
    from baton.cli.screen import complain

    complain(f"{typed[:60]!r} is not a verb; {known}", "UnknownVerb", as_json=as_json)
    return 2
