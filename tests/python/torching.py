# SPDX-License-Identifier: Apache-2.0
"""What the tests of os2g.torch share: a bucket, and processes that end with the test."""

import multiprocessing
import os
import traceback

import mounts
import synthetic

SPEC = "train: img/n%d/%03d uniform:1-300000 x 3 x 25; fix/%03d 4096 x 37; big 20M; empty 0"
BIG = 20 << 20

# a child of a process whose memory is this test's: torch is imported once
FORK = multiprocessing.get_context("fork")
SECONDS = 60


def expected(key, size):
    return synthetic.expected("train", key, 0, size)


def place(server, **more):
    """Options of everything that takes a URI."""
    return {"endpoint": server.url, "region": "us-east-1", **more}


def load(reader):
    """A transform: what a test compares."""
    return reader.key, reader.read()


def right(key, data):
    return data == expected(key, len(data))


def gets(server):
    """GETs of objects since the last reset."""
    return server.counters()["operations"].get("GetObject", 0)


def _run(pipe, function, args):
    try:
        result = True, function(*args)
    except BaseException as error:  # pylint: disable=broad-except
        traceback.print_exc()
        result = False, repr(error)
    pipe.send(result)
    pipe.close()
    os._exit(0)  # what this process shares with its parent is not ended twice


class Rank:
    """function(*args) in a process of its own."""

    def __init__(self, function, *args):
        self._pipe, theirs = FORK.Pipe(duplex=False)
        self.process = FORK.Process(target=_run, args=(theirs, function, args))
        self.process.start()
        theirs.close()

    def result(self):
        assert self._pipe.poll(SECONDS * mounts.slowed_down()), "a rank has not ended in time"
        good, value = self._pipe.recv()
        assert good, value
        self.process.join()
        return value

    def kill(self):
        self.process.kill()
        self.process.join()


def together(function, ranks, *args):
    """function(rank, ranks, *args) as so many processes at once; what they return."""
    running = [Rank(function, rank, ranks, *args) for rank in range(ranks)]
    try:
        return [one.result() for one in running]
    finally:
        for one in running:
            one.kill()
