#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ddp_check.py DIRECTORY: what ddp_two_nodes.sh does at its end.

The order of each rank is worked out anew, by torch's DistributedSampler over the files that the store
serves, and compared with what was reported: with the digest of every rank's samples, and with the GETs
of each object in the store's log. A mount that knows no order (--client files) reads neighbours ahead,
which may be for nothing; all others ask for what the samplers list and for nothing else."""

import argparse
import collections
import hashlib
import json
import pathlib
import re
import statistics
import sys

import torch
from torch.utils.data import DistributedSampler

NODES = 2


class Expected:
    """What rank after rank must have read, epoch by epoch."""

    def __init__(self, images, ranks):
        self.paths = sorted(str(path) for path in images.glob("*/*"))
        names = [path.split("/")[-2] for path in self.paths]
        classes = sorted(set(names))
        self.labels = [classes.index(name) for name in names]
        self.images, self.ranks = images, ranks

    def indices(self, rank, epoch):
        sampler = DistributedSampler(range(len(self.paths)), self.ranks, rank)
        sampler.set_epoch(epoch)
        return list(sampler)

    def digests(self, rank, epoch):
        """As imagenet_resnet18.py has them."""
        for index in self.indices(rank, epoch):
            data = hashlib.sha256(pathlib.Path(self.paths[index]).read_bytes())
            data.update(torch.tensor(self.labels[index]).numpy().tobytes())
            yield data.hexdigest()

    def listed(self, ranks, epochs):
        """How often each key is in these ranks' epochs."""
        return collections.Counter(
            str(pathlib.Path(self.paths[index]).relative_to(self.images))
            for rank in ranks for epoch in range(epochs) for index in self.indices(rank, epoch))


def gets(log, bucket):
    """GETs of each key of the bucket."""
    wanted = re.compile(rf"\S+ GetObject GET /{bucket}/(\S+) 20[06] ")
    return collections.Counter(found[1] for found in map(wanted.match, log.open()) if found)


def wrong_samples(expected, reports):
    for rank, report in enumerate(reports):
        for number, epoch in enumerate(report["epochs"]):
            if epoch["digests"] != list(expected.digests(rank, number)):
                yield f"rank {rank} has read something else in epoch {number}"


def wrong_requests(asked, by_node, exact):
    """Of keys that the nodes list so often. What two ranks of a node, or two epochs, list comes from
    their os2gd's memory where that still has it."""
    for key in sorted(set(asked).union(*by_node)):
        least, most = sum(key in keys for keys in by_node), sum(keys[key] for keys in by_node)
        if asked[key] < least or (exact and asked[key] > most):
            yield f"{key}: {asked[key]} GETs; {least} nodes list it, {most} times in all"


def fallen(reports):
    """Says how the loss went; whether it fell. Of the ranks' mean, as each has its own share."""
    ranks = ([loss for epoch in report["epochs"] for loss in epoch["losses"]] for report in reports)
    losses = [statistics.mean(step) for step in zip(*ranks)]
    if not losses:
        return True
    some = max(1, len(losses) // 4)
    first, last = statistics.mean(losses[:some]), statistics.mean(losses[-some:])
    print(f"loss: {first:.3f} in the first {some} steps, {last:.3f} in the last")
    return last < first


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=pathlib.Path)
    parser.add_argument("--client", required=True)
    parser.add_argument("--ranks", type=int, required=True, help="of each node")
    args = parser.parse_args()

    ranks = args.ranks * NODES
    expected = Expected(args.directory / "store" / "train", ranks)
    reports = [json.loads((args.directory / f"report.{rank}").read_text()) for rank in range(ranks)]
    epochs = len(reports[0]["epochs"])
    by_node = [expected.listed(range(node * args.ranks, (node + 1) * args.ranks), epochs)
               for node in range(NODES)]
    asked = gets(args.directory / "requests", "train")
    for node, keys in enumerate(by_node):
        status = json.loads((args.directory / f"status{node}").read_text())
        print(f"node {node}: its samplers list {sum(keys.values())} samples, {len(keys)} different; "
              f"its os2gd sent {status['store']['requests']['get']} GETs")
    print(f"both: {sum(sum(keys.values()) for keys in by_node)} samples of {len(expected.paths)} objects "
          f"in {epochs} epochs; the store got {sum(asked.values())} GETs")

    wrong = [*wrong_samples(expected, reports),
             *wrong_requests(asked, by_node, args.client != "files")]
    if not fallen(reports):
        wrong.append("the loss has not fallen")
    print(*(wrong or ["every sample was read as often as the samplers say"]), sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
