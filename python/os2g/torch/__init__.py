# SPDX-License-Identifier: Apache-2.0
"""Training data for PyTorch, from object storage by way of os2g.

    MapDataset, IterableDataset   objects as samples, for torch's DataLoader
    PlanSampler                   any sampler, its order declared to the daemon
    DeviceLoader                  whole batches, landed in host or GPU memory
    load_file                     safetensors
    webdataset                    a handler for WebDataset (a module of its own)

Uses torch and the package os2g, nothing else; os2g itself does not need torch."""

from ._batch import Batch
from ._dataset import IterableDataset, MapDataset
from ._labels import directory_labels
from ._loader import DeviceLoader
from ._reader import Reader
from ._safetensors import load_file
from ._sampler import PlanSampler
from ._stalls import LoaderStalls

__all__ = ["Batch", "DeviceLoader", "IterableDataset", "LoaderStalls", "MapDataset", "PlanSampler",
           "Reader", "directory_labels", "load_file"]
