#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""libos2g's functions are the same everywhere: declared in the public header, listed in the version
map, exported by the library, named by a man page, whose synopsis has the header's declaration; and each
can be asked of man(1) by its name.

usage: public_symbols.py LIBRARY MAN-DIRECTORY   (the directory of the built man pages)"""

import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
HEADER = ROOT / "include" / "os2g" / "os2g.h"
MAP = ROOT / "src" / "host" / "os2g.map"
MAN = ROOT / "docs" / "man"


def plain(text):
    """A declaration without what only its typesetting differs in."""
    return re.sub(r"\s+", "", text)


def declarations():
    """{name: declaration} of the header."""
    text = re.sub(r"//[^\n]*", "", HEADER.read_text(encoding="utf-8"))
    found = {}
    for declaration in re.findall(r"^OS2G_API\s+([^;]+;)", text, re.M):
        found[re.search(r"\b(os2g_\w+)\(", declaration)[1]] = plain(declaration)
    return found


def mapped():
    text = MAP.read_text(encoding="utf-8")
    return set(re.findall(r"^\s*(os2g_\w+);", text[:text.index("local:")], re.M))


def exported(library):
    out = subprocess.run(["nm", "-D", "--defined-only", library], check=True, text=True,
                         stdout=subprocess.PIPE).stdout
    return {line.split()[2].split("@")[0] for line in out.splitlines() if line.split()[1] == "T"}


def roff(line):
    """What a line of .B or .BI shows, but for blanks: its arguments."""
    return "".join(quoted or bare for quoted, bare in
                   re.findall(r'"([^"]*)"|(\S+)', line.partition(" ")[2]))


def page(file):
    """The names of a page, and its synopsis as plain text."""
    lines = file.read_text(encoding="utf-8").splitlines()
    names = set(re.findall(r"\bos2g_\w+", lines[lines.index(".SH NAME") + 1].split("\\-")[0]))
    synopsis = lines[lines.index(".SH SYNOPSIS"):lines.index(".SH DESCRIPTION")]
    return names, plain("".join(roff(line) for line in synopsis if line.startswith(".B")))


def violations(library, built):
    declared = declarations()
    for what, names in ((MAP.name, mapped()), (library, exported(library))):
        for name in sorted(set(declared) - names):
            yield f"{name} is declared, but not in {what}"
        for name in sorted(names - set(declared)):
            yield f"{name} is in {what}, but not declared"
    documented = {}
    for file in sorted(MAN.glob("*.3")):
        names, synopsis = page(file)
        for name in sorted(names):
            documented[name] = file.name
            if name not in declared:
                yield f"{file.name} names {name}, which is not declared"
            elif declared[name] not in synopsis:
                yield f"{file.name}: the synopsis has not got {declared[name]}"
            if not (built / f"{name}.3").exists() and file.stem != name:
                yield f"{name}.3 does not lead to {file.name}"
    for name in sorted(set(declared) - set(documented)):
        yield f"{name} is in no man page"


def main():
    found = list(violations(sys.argv[1], pathlib.Path(sys.argv[2])))
    for line in found:
        print(line)
    return 1 if found or not declarations() else 0


if __name__ == "__main__":
    sys.exit(main())
