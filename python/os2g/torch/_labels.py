# SPDX-License-Identifier: Apache-2.0
"""Labels from keys."""

from typing import Dict, List, Sequence, Tuple


def directory_labels(keys: Sequence[str]) -> Tuple[List[int], Dict[str, int]]:
    """The class of each key, and the classes by name: the directories that the keys are in, sorted,
    as torchvision's ImageFolder has them."""
    names = [key.rpartition("/")[0].rpartition("/")[2] for key in keys]
    classes = {name: number for number, name in enumerate(sorted(set(names)))}
    return [classes[name] for name in names], classes
