# SPDX-License-Identifier: Apache-2.0
"""Host, device and store: a control group each, with cores of its own and a clock of the CPU it uses.

Works on both versions of control groups. All go before whatever else the machine does. The store may
use every core and goes before host and device, because a real one is another machine.
"""

import contextlib
import os
import pathlib
import time

PERIOD_US = 10_000


class _Version1:
    """Three hierarchies, one for each controller."""

    CONTROLLERS = ("cpu", "cpuacct", "cpuset")

    def __init__(self, name, cpus, share):
        self._paths = {c: pathlib.Path("/sys/fs/cgroup", c, name) for c in self.CONTROLLERS}
        for path in self._paths.values():
            path.mkdir(parents=True)
        parent = self._paths["cpuset"].parent
        if not (parent / "cpuset.cpus").read_text().strip():  # a new parent is empty
            for file in ("cpuset.cpus", "cpuset.mems"):
                (parent / file).write_text((parent.parent / file).read_text())
        (self._paths["cpuset"] / "cpuset.mems").write_text((parent / "cpuset.mems").read_text())
        (self._paths["cpuset"] / "cpuset.cpus").write_text(cpus)
        (self._paths["cpu"] / "cpu.shares").write_text(str(1024 * share))
        (self._paths["cpu"].parent / "cpu.shares").write_text("262144")

    def enter(self, pid=0):
        for path in self._paths.values():
            (path / "cgroup.procs").write_text(str(pid))

    def cpu_seconds(self):
        return int((self._paths["cpuacct"] / "cpuacct.usage").read_text()) / 1e9

    def throttle(self, part):
        quota = int(PERIOD_US * part) if part else -1
        (self._paths["cpu"] / "cpu.cfs_period_us").write_text(str(PERIOD_US))
        (self._paths["cpu"] / "cpu.cfs_quota_us").write_text(str(quota))

    def directories(self):
        return self._paths.values()


class _Version2:
    TOP = pathlib.Path("/sys/fs/cgroup")

    def __init__(self, name, cpus, share):
        self._path = self.TOP / name
        for above in (self._path.parent.parent, self._path.parent):
            above.mkdir(exist_ok=True)
            (above / "cgroup.subtree_control").write_text("+cpu +cpuset")
        self._path.mkdir()
        (self._path.parent / "cpu.weight").write_text("10000")
        (self._path / "cpuset.cpus").write_text(cpus)
        (self._path / "cpu.weight").write_text(str(100 * share))

    def enter(self, pid=0):
        (self._path / "cgroup.procs").write_text(str(pid))

    def cpu_seconds(self):
        fields = dict(line.split() for line in (self._path / "cpu.stat").read_text().splitlines())
        return int(fields["usage_usec"]) / 1e6

    def throttle(self, part):
        quota = int(PERIOD_US * part) if part else "max"
        (self._path / "cpu.max").write_text(f"{quota} {PERIOD_US}")

    def directories(self):
        return [self._path]


class Side:
    """cpus: as "0" or "0-1". share: of a core that others want too, relative to theirs."""

    def __init__(self, top, name, cpus, share=1):
        version = _Version2 if (_Version2.TOP / "cgroup.controllers").exists() else _Version1
        self.name, self.cpus = name, cpus
        self._group = version(f"{top}/{name}", cpus, share)

    def enter(self):
        """Moves this process there: for preexec_fn."""
        self._group.enter()

    def admit(self, pid):
        """Moves a process there, with the threads that it has."""
        self._group.enter(pid)

    def cpu_seconds(self):
        """Used so far by all that ever ran there."""
        return self._group.cpu_seconds()

    def throttle(self, part):
        """To this part of a core; None: no more."""
        self._group.throttle(part)

    def close(self):
        for directory in self._group.directories():
            for _ in range(100):  # what has ended leaves a little later
                with contextlib.suppress(OSError):
                    directory.rmdir()
                    break
                time.sleep(0.02)


class Sides:
    """host and device on a core each; both: a host that has the two, as a control; store."""

    NAMES = ("host", "device", "both", "store")

    def __init__(self):
        cores = sorted(os.sched_getaffinity(0))
        if len(cores) < 2:
            raise RuntimeError("host and device need a core each: this machine lends only one")
        first, second = str(cores[0]), str(cores[1])
        self._top = f"os2g-bench-{os.getpid()}"
        made = {}
        try:
            made["host"] = Side(self._top, "host", first)
            made["device"] = Side(self._top, "device", second)
            made["both"] = Side(self._top, "both", f"{first},{second}")
            made["store"] = Side(self._top, "store", ",".join(map(str, cores)), share=8)
        except OSError as error:
            for side in made.values():
                side.close()
            raise RuntimeError(f"cannot make control groups ({error}): run as root on the machine "
                               "itself, or in a container that may") from error
        self.__dict__.update(made)
        self._made = list(made.values())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for side in self._made:
            side.close()
        for top in {d.parent for side in self._made for d in side._group.directories()}:
            with contextlib.suppress(OSError):
                top.rmdir()
