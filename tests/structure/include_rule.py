#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Holds the include rule: a directory under src/ includes only from itself and from those that its
row in LAYERS names (docs/ARCHITECTURE.md has the picture). A row may name single headers."""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
SRC = ROOT / "src"

# Bottom to top.
LAYERS = {
    "base": [],
    # both sides of the wire
    "wire": [],
    "loop": ["base"],
    "net": ["base", "loop"],
    "s3": ["base", "loop", "net"],
    "cache": ["base", "loop", "net", "s3"],
    "prefetch": ["base"],
    "fs": ["base", "loop", "net", "s3", "cache", "prefetch", "wire"],
    "fuse": ["base", "loop", "fs/fs.h", "cache/dest.h", "wire"],
    # the CUDA driver, opened when it is there
    "cuda": ["base"],
    "gdd": ["base", "loop", "cache/dest.h", "cuda"],
    "front/devfuse": ["base", "loop", "fuse", "fs/fs.h"],
    "front/vhost": ["base", "loop", "wire", "fuse", "fs/fs.h", "gdd", "cache/cache.h",
                    "cache/dest.h"],
    "daemon": ["base", "loop", "net", "s3", "cache", "fs", "fuse", "gdd", "front/devfuse",
               "front/vhost"],
    # libos2g shares only the wire with the device
    "host": ["base", "wire", "cuda"],
    "cli": ["base", "loop", "net", "s3", "daemon", "wire", "gdd/engine.h",
            "front/devfuse/devfuse.h"],
    # a program of its own, beside the product: only what both sides of the wire share
    "s3d": ["base", "loop", "net/http_head.h", "s3/sigv4.h"],
}

# Who may use libos2g's public header.
PUBLIC = ["host", "cli"]

INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.M)
INCLUDE_PUBLIC = re.compile(r"^\s*#\s*include\s+<os2g/", re.M)


def layer_of(path):
    """The LAYERS row of a path relative to src/, longest match first; None if there is none."""
    for name in sorted(LAYERS, key=len, reverse=True):
        if path == name or path.startswith(name + "/"):
            return name
    return None


def violations():
    for file in sorted(SRC.rglob("*.[ch]")):
        relative = file.relative_to(SRC).as_posix()
        layer = layer_of(relative)
        if layer is None:
            yield f"src/{relative}: its directory has no row in LAYERS"
            continue
        text = file.read_text(encoding="utf-8")
        if INCLUDE_PUBLIC.search(text) and layer not in PUBLIC:
            yield f"src/{relative}: includes libos2g's header, but {layer}/ may not use it"
        for included in INCLUDE.findall(text):
            target = layer_of(included)
            if target is None:
                yield f'src/{relative}: includes "{included}"; name it from src/ or include/'
            elif target != layer and target not in LAYERS[layer] and included not in LAYERS[layer]:
                yield f'src/{relative}: includes "{included}", but {layer}/ may not use {target}/'


def main():
    found = list(violations())
    for line in found:
        print(line)
    if not list(SRC.rglob("*.c")):
        print("no sources found")
        return 1
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
