#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""bench/train/report.py: writes docs/results.md and its plots from bench/results/train/*.json.

With --check it writes nothing and exits with 1 if docs/results.md is not what it would write, or a plot
that it shows is not there. Plots need python3-matplotlib, all else Python alone.
"""

import argparse
import pathlib
import re
import sys

from reporting import document
from reporting.results import Results

ROOT = pathlib.Path(__file__).resolve().parents[2]


def wrong(text, file):
    """What --check finds."""
    if not file.exists() or file.read_text(encoding="utf-8") != text:
        yield f"{file} is not what bench/train/report.py writes"
    for picture in re.findall(r"^!\[.*\]\((.*)\)$", text, re.M):
        if not (file.parent / picture).exists():
            yield f"{file.parent / picture} is missing: run bench/train/report.py"


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare, instead of writing")
    parser.add_argument("--no-plots", action="store_true", help="write the Markdown only")
    parser.add_argument("--results", type=pathlib.Path, default=ROOT / "bench" / "results" / "train")
    parser.add_argument("--docs", type=pathlib.Path, default=ROOT / "docs")
    args = parser.parse_args()
    results, file = Results(args.results), args.docs / "results.md"
    text = document.write(results)
    if args.check:
        if not results.sections and not file.exists():
            return 0  # nothing was run, and nothing is told
        found = list(wrong(text, file))
        print("\n".join(found), end="\n" if found else "")
        return 1 if found else 0
    file.write_text(text, encoding="utf-8")
    if not args.no_plots:
        from reporting import plots  # here, because of matplotlib

        plots.draw(results, args.docs / "results")
    return 0


if __name__ == "__main__":
    sys.exit(main())
