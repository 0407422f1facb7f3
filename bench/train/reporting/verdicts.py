# SPDX-License-Identifier: Apache-2.0
"""What the experiment must show, and whether it does."""

import dataclasses

from .results import known, ratio

# Of OS2G's authors, training ResNet18: "OS2G: A High-Performance DPU Offloading Architecture for GPU-based
# Deep Learning with Object Storage", ASPLOS 2025, doi 10.1145/3676641.3716265.
PAPER = {"s3fs": {"time": -0.343, "cpu": -0.619}, "s3connector": {"time": -0.504, "cpu": -0.577}}


@dataclasses.dataclass(frozen=True)
class Verdict:
    """measured: a ratio, or None if it was not measured. holds: None without a threshold, too."""

    what: str
    against: str
    measured: float = None
    threshold: float = None
    at_least: bool = False

    @property
    def holds(self):
        if self.measured is None or self.threshold is None:
            return None
        return self.measured >= self.threshold if self.at_least else self.measured <= self.threshold


PEERS = {"s3fs": "S3FS", "s3connector": "S3 Connector"}


def _against_peers(what, threshold, measure, **more):
    return [Verdict(what, label, measure(peer), threshold, **more) for peer, label in PEERS.items()]


def epoch_time(section, peer, client):
    """A client's relative to the peer's, at the step that keeps the peer's accelerator 40 % busy."""
    at = f"at_{peer}_40"
    return ratio(section.figure(at, client), section.figure(at, peer)) if section else None


def ratios(results):
    """Those of the accelerator mode, in the order in which they are told."""
    def compare(name, ours="gdd"):
        return lambda peer: results.ratio("compare", name, ours, peer)

    def at_40(peer):
        return epoch_time(results.get("compare"), peer, "gdd")

    def confined(peer):
        return results.ratio("controls", "rate", "gdd@host core", f"{peer}@both cores")

    return [
        Verdict("epoch time, its accelerator 40 % busy: GDD", "S3FS", at_40("s3fs"), 0.657),
        Verdict("epoch time, its accelerator 40 % busy: GDD", "S3 Connector", at_40("s3connector"), 0.496),
        *_against_peers("shortest step: GDD", 0.5, compare("min_step_ms")),
        *_against_peers("host CPU: GDD", 0.1, compare("host_cpu_s")),
        *_against_peers("host and device CPU together: GDD", 0.6, compare("total_cpu_s")),
        *_against_peers("host and device CPU together: mount + plan", 0.8, compare("total_cpu_s", "plan")),
        *[Verdict("rate, confined to the host's core: GDD", f"{label} with both cores",
                  confined(peer), 1, at_least=True) for peer, label in PEERS.items()],
        Verdict("rate: mount + plan", "OS2G GDD", compare("rate", "plan")("gdd"), 0.6, at_least=True),
        Verdict("naive offload, rate: S3FS on the device", "S3FS",
                compare("rate", "s3fs_on_device")("s3fs")),
        Verdict("naive offload, host CPU: S3FS on the device", "S3FS",
                compare("host_cpu_s", "s3fs_on_device")("s3fs")),
    ]


OWN_ORDER = ("webdataset",)


def own_order(rows):
    """Whose order is not the sampler's; that they have the same samples was checked in the run."""
    return [name for name, _ in known(rows) if name in OWN_ORDER]


def training(rows):
    """Of one data set of the cpu mode, three lists of clients: whose loss did not fall; that saw other
    batches than most did; that cannot be compared with others."""
    risen, orders, unknown = [], {}, []
    for name, row in known(rows):
        first, last = row.get("loss_first"), row.get("loss_last")
        if first is None or last is None or not last < first:
            risen.append(name)
        if not row.get("digest"):
            unknown.append(name)
        elif name not in OWN_ORDER:
            orders.setdefault(row["digest"], []).append(name)
    most = max(orders.values(), key=len, default=[])
    return risen, [name for names in orders.values() if names is not most for name in names], unknown
