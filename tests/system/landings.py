# SPDX-License-Identifier: Apache-2.0
"""Programs on libos2g for the tests: lander (lander.c) and os2g bench."""

import json
import subprocess

import mounts
import s3d
import synthetic

LANDER = s3d.BUILD / "tests" / "system" / "lander"


class Landing:
    """One line of lander's: what has become of an object."""

    def __init__(self, line):
        result, size, self.sha256, self.key = line.rstrip("\n").split(" ", 3)
        self.result, self.size = int(result), int(size)

    def is_right(self, bucket, size, prefix=""):
        """The whole object has landed, every byte right."""
        return (self.result == size and self.size == size
                and self.sha256 == synthetic.digest(bucket, prefix + self.key, size))


def check(where, objects, directory, *options, timeout=mounts.SECONDS * 6):
    """lander check over (key, size) pairs, in their order: [Landing], in the order of their ends."""
    listed = directory / "objects"
    listed.write_text("".join(f"{size} {key}\n" for key, size in objects))
    done = subprocess.run([LANDER, "check", where, listed, *map(str, options)], check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          env=mounts.environment(), timeout=timeout)
    assert done.returncode == 0, done.stderr
    landings = [Landing(line) for line in done.stdout.splitlines()]
    assert len(landings) == len(objects)
    return landings


class Plan:
    """A plan over (key, size) pairs, until stop()."""

    def __init__(self, where, objects, directory):
        listed = directory / "plan"
        listed.write_text("".join(f"{size} {key}\n" for key, size in objects))
        self.process = subprocess.Popen([LANDER, "plan", where, listed], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True,
                                        env=mounts.environment())
        assert self.process.stdout.readline() == "set\n"

    def status(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        names = ("entries", "fetched", "used", "dropped", "missing", "bytes")
        return dict(zip(names, map(int, self.process.stdout.readline().split())))

    def stop(self):
        self.process.stdin.close()
        code = self.process.wait(timeout=mounts.SECONDS)
        self.process.stdout.close()
        return code

    def __enter__(self):
        return self

    def __exit__(self, *_):
        assert self.stop() == 0


def bench(where, *options, check=True, env=None):
    """os2g bench --json: its figures; unless check, the CompletedProcess."""
    done = subprocess.run([mounts.PROGRAM, "bench", where, "--json", *map(str, options)],
                          check=False, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          env=env or mounts.environment(), timeout=mounts.SECONDS * 4)
    if not check:
        return done
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
