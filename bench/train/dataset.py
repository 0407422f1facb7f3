# SPDX-License-Identifier: Apache-2.0
"""What is trained on: ready tensors of 3 x 224 x 224 bytes in directories of 256, one a class.

The synthetic set is larger than any cache here, and each epoch of the benchmark takes directories that
have not been read before, so that every client fetches every sample.
"""

import random

SAMPLE = 3 * 224 * 224
PER_CLASS = 256
BUCKET = "train"


class Dataset:
    def __init__(self, classes):
        self.classes = classes
        self.keys = [f"n{c:04d}/{i:06d}.bin" for c in range(classes) for i in range(PER_CLASS)]
        self._next = 0

    @property
    def synthetic(self):
        """The bucket, as os2g-s3d makes it up."""
        return f"{BUCKET}: " + "; ".join(f"n{c:04d}/%06d.bin {SAMPLE} x {PER_CLASS}"
                                         for c in range(self.classes))

    def take(self, samples, seed=0):
        """The indices of an epoch, shuffled, and its directories."""
        classes = -(-samples // PER_CLASS)
        if classes > self.classes:
            raise ValueError(f"{samples} samples of {len(self.keys)}")
        if self._next + classes > self.classes:
            self._next = 0
        first, self._next = self._next, self._next + classes
        indices = list(range(first * PER_CLASS, self._next * PER_CLASS))
        random.Random(seed).shuffle(indices)
        return indices[:samples], [f"n{c:04d}" for c in range(first, self._next)]
