# SPDX-License-Identifier: Apache-2.0
"""train: the paper's experiment (ASPLOS 2025), on an emulated DPU; docs/results.md has what came out.

Batches of ready tensors are taken by a training job whose step takes a fixed time and no CPU, as MLPerf
Storage does. Host and device have a core each; the store has what is left, before the others.
"""

from . import accelerator, sections
from .sections import SECTIONS


def main(quick, names=None):
    """names: of sections; default all."""
    return accelerator.quick() if quick else sections.run(names or SECTIONS)
