# SPDX-License-Identifier: Apache-2.0
"""The sections that were run, as bench/run train left them; what was not run is None, or empty."""

import json

# In the order of all tables and plots, with the names that these have.
CLIENTS = {
    "s3fs": "S3FS",
    "s3fs_on_device": "S3FS on the device",
    "s3connector": "S3 Connector",
    "rclone": "rclone mount",
    "webdataset": "WebDataset",
    "mount": "OS2G mount",
    "plan": "OS2G mount + plan",
    "gdd": "OS2G GDD",
    "local": "local files",
}


def known(by_client):
    """[(client, its value)] of the clients that are there."""
    return [(name, by_client[name]) for name in CLIENTS if by_client and by_client.get(name)]


def ratio(a, b):
    return None if a is None or not b else a / b


class Section:
    """result: a dict, as each section has it. A row is a dict of one client's figures."""

    def __init__(self, raw):
        self.raw, self.name = raw, raw["section"]
        self.result, self.records = raw.get("result") or {}, raw.get("records") or []
        self.samples, self.machine = raw.get("samples"), raw.get("machine") or {}

    def figure(self, row, name):
        return (self.result.get(row) or {}).get(name)

    def samples_of(self, what):
        """Of the epochs that measured this; None if there is no such record."""
        return next((r["samples"] for r in self.records if r.get("what") == what), None)

    def per_thousand(self, row, name):
        """Of what a row tells of an epoch: what 1,000 samples took."""
        value = row.get(name)
        return None if value is None or not self.samples else 1000 * value / self.samples


class Results:
    """directory: of SECTION.json."""

    def __init__(self, directory):
        raws = [json.loads(path.read_text(encoding="utf-8"))
                for path in sorted(directory.glob("*.json"))]
        self.sections = {raw["section"]: Section(raw) for raw in raws}

    def get(self, section):
        return self.sections.get(section)

    def figure(self, section, row, name):
        """One figure; None if it was not measured."""
        found = self.get(section)
        return found.figure(row, name) if found else None

    def ratio(self, section, name, ours, peers):
        """Of one figure of two rows."""
        return ratio(self.figure(section, ours, name), self.figure(section, peers, name))
