"""What of a tree of folders belongs to the board: the rule by which all who walk or watch it choose."""

from __future__ import annotations

import os

SKIPPED = frozenset({"node_modules"})


def is_document(name: str) -> bool:
    """Whether a file of that name counts: Markdown, not hidden (editors lock and save by hidden names)."""
    return name.endswith(".md") and not name.startswith(".")


def is_folder(name: str) -> bool:
    """Whether a folder of that name is looked into: not `.git` and its like, nor what packages bring."""
    return not name.startswith(".") and name not in SKIPPED


def look_into(folder: str) -> tuple[list[str], list[str]]:
    """The documents and the folders in one folder, by path; none where it is gone or may not be read."""
    documents: list[str] = []
    folders: list[str] = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    if is_folder(entry.name):
                        folders.append(entry.path)
                elif is_document(entry.name):
                    documents.append(entry.path)
    except OSError:
        pass  # it went away meanwhile
    return documents, folders
