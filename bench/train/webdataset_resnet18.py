# SPDX-License-Identifier: Apache-2.0
"""webdataset_resnet18.py CLASSES ...: examples/imagenet_resnet18.py with one more --client, webdataset.
Its --data is the URLs of tar shards of .jpg or .bin with .cls, as WebDataset's own tools write them."""

import pathlib
import sys

import webdataset
from torch.utils.data import DataLoader, default_collate

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "examples"))

import imagenet_resnet18 as example  # noqa: E402

SUFFIX = {"jpeg": "jpg", "tensors": "bin"}


def loader(args, rank, ranks):
    def decode(sample):
        return example.decode(args.kind, sample[SUFFIX[args.kind]]), int(sample["cls"])

    data = webdataset.WebDataset(args.data, shardshuffle=1000, nodesplitter=webdataset.split_by_node,
                                 seed=args.seed)
    data = data.shuffle(1000, seed=args.seed).map(decode).batched(args.batch, collation_fn=default_collate)
    return DataLoader(data, batch_size=None, num_workers=args.workers), lambda epoch: None, classes


if __name__ == "__main__":
    classes = int(sys.argv.pop(1))
    example.CLIENTS["webdataset"] = loader
    example.main()
