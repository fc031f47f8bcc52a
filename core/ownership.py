"""Check whether another user can change a file that is run as a program.

A context binary and the compiled programs of a performance cache are native code. So, as ssh does with StrictModes, a
file counts as the user's only if no other user can write or exchange it. The file and the folders above it, up to the
home folder, must belong to the user or to root. Neither others nor a group with other members may write there. In a
folder with the sticky bit, such as /tmp, only the owner can exchange a file. That is enough for a context, but not for
a cache, because another user could put a journal next to it.

TRUSTED_FOLDERS names folders that are not checked. They are for file systems without permissions, for containers whose
user does not own the mounted files, and for teams that share files. Where a system has no users in this sense
(Windows), nothing is checked. Commands that only show a cache or a context's header run nothing and read any file.
"""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

from gputune.core.errors import UntrustedFile

try:
    import grp
    import pwd
except ImportError:  # not a system of this kind, or one that keeps no list of its users
    grp = pwd = None  # type: ignore[assignment]

TRUSTED_FOLDERS = "GPUTUNE_TRUSTED_FOLDERS"
"""The environment variable: paths of folders with os.pathsep between them."""
_FIRST_ANDROID_APP = 10_000


def untrusted(path: Path | str, shared_folder: bool = True) -> str:
    """Return why another user could change what is at a path, or put it there, in words that follow its name, and what
    to do; empty where none could. Raises OSError for a path that cannot be looked up.

    shared_folder: a folder with the sticky bit will do for the file itself. Not for a database, whose companions
    another user could put beside it.
    """
    if not hasattr(os, "geteuid"):
        return ""
    found = Path(path).resolve()
    if any(found.is_relative_to(folder) for folder in _trusted_folders()):
        return ""
    home = Path(os.environ["HOME"]).resolve() if os.environ.get("HOME") else None
    for place in (found, *found.parents):
        try:
            status = place.stat()
        except FileNotFoundError:  # it will be made, and belong to the user then
            continue
        sticky = stat.S_ISDIR(status.st_mode) and bool(status.st_mode & stat.S_ISVTX)
        if why := _changeable(status, sticky and (shared_folder or place != found.parent)):
            where = "" if place == found else f"lies in {place}, which "
            return f"{where}{why}; change that, or name a folder that you trust in {TRUSTED_FOLDERS}"
        if place == home:
            break
    return ""


def check_trusted(path: Path | str) -> None:
    """Raise UntrustedFile for a context that another user could change."""
    if why := untrusted(path):
        raise UntrustedFile(f"{path} {why}: a context runs as a program of yours")


def _changeable(status: os.stat_result, sticky: bool) -> str:
    """Return who else can write to a file or folder."""
    owner, group = status.st_uid, status.st_gid
    if owner != os.geteuid() and not _of_the_system(owner):
        return f"belongs to another user ({_user(owner) or owner}), who could change it"
    if status.st_mode & stat.S_IWOTH and not sticky:
        return "can be written by every user"
    if status.st_mode & stat.S_IWGRP and not sticky and not _private(group, owner):
        return f"can be written by the group {_group(group)[0] or group}"
    return ""


def _private(group: int, owner: int) -> bool:
    """Return whether a group is the system's, or its owner's alone. By convention one with the user's name or number
    is; who else has it as a first group, no system says without a list of all its users."""
    if _of_the_system(group):
        return True
    name, members = _group(group)
    user = _user(owner)
    return (group == owner or (user != "" and name == user)) and members <= {user}


def _of_the_system(number: int) -> bool:
    """Return whether a user or group is root, or on Android one that is no app's."""
    return number == 0 or (hasattr(sys, "getandroidapilevel") and number < _FIRST_ANDROID_APP)


def _user(number: int) -> str:
    """Return the name of a user, empty where it has none."""
    try:
        return "" if pwd is None else pwd.getpwuid(number).pw_name
    except KeyError:
        return ""


def _group(number: int) -> tuple[str, set[str]]:
    """Return the name of a group, empty where it has none, and its members."""
    try:
        found = None if grp is None else grp.getgrgid(number)
    except KeyError:
        found = None
    return ("", set()) if found is None else (found.gr_name, set(found.gr_mem))


def _trusted_folders() -> list[Path]:
    named = os.environ.get(TRUSTED_FOLDERS, "").split(os.pathsep)
    return [Path(folder).resolve() for folder in named if folder]
