# SPDX-License-Identifier: Apache-2.0
"""Keys that expire, from every source that gives such keys: nobody who reads notices."""

import hashlib
import json
import os
import random
import subprocess
import threading
import time

import pytest

import mounts
import s3d
import synthetic

LIFETIME_S, SECONDS = 20, 60
SIZE = 1 << 40
SPEC = "bench: one.bin 1T"
WEB_TOKEN, CONTAINER_TOKEN = "header.body.signature", "Basic container"
SOURCES = ("web-identity", "instance", "container", "process")


def start(server, lifetime_s=LIFETIME_S):
    return server("--synthetic", SPEC, "--session-lifetime", lifetime_s, "--web-identity-token",
                  WEB_TOKEN, "--imds", "training-role", "--container-token", CONTAINER_TOKEN)


def environment(source, s, tmp_path):
    """An environment in which keys come from that source alone."""
    if source == "web-identity":
        (tmp_path / "token").write_text(WEB_TOKEN + "\n")
        return mounts.environment(access=None, AWS_WEB_IDENTITY_TOKEN_FILE=str(tmp_path / "token"),
                                  AWS_ROLE_ARN="arn:aws:iam::123456789012:role/train",
                                  AWS_ENDPOINT_URL_STS=s.url)
    if source == "instance":
        return mounts.environment(access=None, AWS_EC2_METADATA_DISABLED="false",
                                  AWS_EC2_METADATA_SERVICE_ENDPOINT=s.url)
    if source == "container":
        return mounts.environment(access=None,
                                  AWS_CONTAINER_CREDENTIALS_FULL_URI=f"{s.url}/credentials",
                                  AWS_CONTAINER_AUTHORIZATION_TOKEN=CONTAINER_TOKEN)
    program = tmp_path / "get keys"
    program.write_text("#!/usr/bin/python3\nimport urllib.request\n"
                       "opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))\n"
                       f"print(opener.open('{s.url}/_s3d/issue-credentials').read().decode())\n")
    program.chmod(0o755)
    (tmp_path / "config").write_text(f"[profile train]\ncredential_process = '{program}' --now\n")
    return mounts.environment(access=None, AWS_CONFIG_FILE=str(tmp_path / "config"),
                              AWS_PROFILE="train")


class Reader(threading.Thread):
    """Reads at random places, each of which is a request to the store, until end()."""

    def __init__(self, path):
        super().__init__()
        self.reads, self.trouble = 0, None
        self._path, self._ended = path, threading.Event()
        self.start()

    def run(self):
        rng = random.Random(str(self._path))
        fd = os.open(self._path, os.O_RDONLY)
        try:
            while not self._ended.is_set() and not self.trouble:
                offset = rng.randrange(SIZE - 4096)
                data = os.pread(fd, 4096, offset)
                if len(data) != 4096 or synthetic.first_wrong(data, "bench", "one.bin", offset):
                    self.trouble = f"wrong bytes at {offset}"
                self.reads += 1
                time.sleep(0.02)
        except OSError as error:
            self.trouble = f"read {self.reads}: {error}"
        finally:
            os.close(fd)

    def end(self):
        self._ended.set()
        self.join(timeout=60)
        assert not self.is_alive(), "the reader hangs"


def test_keys_of_twenty_seconds_never_fail_a_read(server, mount, tmp_path):
    s = start(server)
    readers = {}
    for source in SOURCES:
        home = tmp_path / source
        home.mkdir()
        m = mount("bench", server=s, env=environment(source, s, home))
        readers[source] = Reader(m.path / "one.bin")
    time.sleep(SECONDS)
    for reader in readers.values():
        reader.end()
    assert {k: r.trouble for k, r in readers.items()} == {k: None for k in SOURCES}
    for source, reader in readers.items():
        assert reader.reads > 500, source
    # not even a request that was refused and sent again
    assert refusals(s) == 0
    operations = s.counters()["operations"]
    for operation in ("AssumeRoleWithWebIdentity", "InstanceMetadata", "ContainerCredentials"):
        assert operations[operation] >= SECONDS / LIFETIME_S, f"{operation}: not fetched anew"


def refusals(s):
    return sum(n for status, n in s.counters()["statuses"].items() if status in ("400", "403"))


@pytest.mark.parametrize("source", SOURCES)
def test_keys_that_the_store_ends_early_are_fetched_anew(server, mount, tmp_path, source):
    s = start(server, lifetime_s=3600)
    m = mount("bench", server=s, env=environment(source, s, tmp_path))
    reader = Reader(m.path / "one.bin")
    for _ in range(3):
        before = reader.reads
        mounts.wait_until(lambda: reader.reads > before + 5 or reader.trouble)
        assert s.expire_credentials() >= 1
        time.sleep(1)
    before = reader.reads
    mounts.wait_until(lambda: reader.reads > before + 5 or reader.trouble)
    reader.end()
    assert reader.trouble is None


def test_a_worker_that_takes_over_while_no_keys_are_to_be_had_stays_with_its_store(server, mount,
                                                                                   tmp_path):
    s = start(server, lifetime_s=3600)
    env = environment("process", s, tmp_path)
    with open(tmp_path / "config", "a", encoding="utf-8") as config:
        config.write(f"endpoint_url = {s.url}\nregion = eu-test-1\n")
    m = mount("bench", env=env)
    reader = Reader(m.path / "one.bin")
    mounts.wait_until(lambda: reader.reads > 5 or reader.trouble)
    program = tmp_path / "get keys"
    works = program.read_text()
    program.write_text("#!/bin/sh\nexit 1\n")
    old = m.kill_worker()
    mounts.wait_until(lambda: m.child_pid() not in (None, old))
    assert m.status()["endpoint"] == s.url
    program.write_text(works)
    before = reader.reads
    mounts.wait_until(lambda: reader.reads > before + 5 or reader.trouble)
    reader.end()
    assert reader.trouble is None


def refused(mount, s, env):
    with pytest.raises(subprocess.CalledProcessError) as error:
        mount("bench", server=s, env=env)
    return error.value.stderr


def test_a_source_that_says_no_fails_the_mount_with_its_words(server, mount, tmp_path):
    s = start(server)
    env = environment("web-identity", s, tmp_path)
    (tmp_path / "token").write_text("another")
    text = refused(mount, s, env)
    assert "InvalidIdentityToken" in text and str(tmp_path / "token") in text

    env = environment("container", s, tmp_path)
    env["AWS_CONTAINER_AUTHORIZATION_TOKEN"] = "wrong"
    text = refused(mount, s, env)
    assert "container" in text and "401" in text

    env = environment("process", s, tmp_path)
    (tmp_path / "get keys").write_text("#!/bin/sh\necho sign in first >&2\nexit 1\n")
    assert "sign in first" in refused(mount, s, env)


def environment_keys(s, expires=None):
    """Keys of the store's, in the environment; when they expire, there and here."""
    keys = json.loads(subprocess.run([s3d.PROGRAM, "issue-credentials", s.url], check=True,
                                     stdout=subprocess.PIPE).stdout)
    return keys["Expiration"], mounts.environment(
        keys["AccessKeyId"], keys["SecretAccessKey"], AWS_SESSION_TOKEN=keys["SessionToken"],
        AWS_CREDENTIAL_EXPIRATION=expires or keys["Expiration"])


def test_expired_keys_of_the_environment_are_called_expired(server, mount):
    s = start(server)
    _, env = environment_keys(s, expires="2020-01-01T00:00:00+01:00")
    text = refused(mount, s, env)
    assert "AWS_CREDENTIAL_EXPIRATION" in text and "expired" in text
    assert "2019-12-31T23:00:00" in text and "get new ones" in text
    assert s.counters()["requests_total"] == 0
    _, env = environment_keys(s, expires="soon")
    assert 'AWS_CREDENTIAL_EXPIRATION "soon" is not a time' in refused(mount, s, env)


def test_keys_of_the_environment_that_expire_are_an_error_from_then_on(server, mount):
    s = start(server, lifetime_s=8)
    begun = time.monotonic()
    _, env = environment_keys(s)
    m = mount("bench", server=s, env=env, direct_io=True)
    with open(m.path / "one.bin", "rb", buffering=0) as f:
        assert len(os.pread(f.fileno(), 4096, 0)) == 4096
        time.sleep(max(0, begun + 9 - time.monotonic()))
        before = time.monotonic()
        with pytest.raises(PermissionError):
            os.pread(f.fileno(), 4096, 1 << 30)
        assert time.monotonic() - before < 5 * mounts.slowed_down()


def test_an_expired_sign_in_tells_how_to_sign_in(server, mount, tmp_path):
    cache = tmp_path / ".aws" / "sso" / "cache"
    cache.mkdir(parents=True)
    (tmp_path / "config").write_text(
        "[profile corp]\nsso_session = corp\nsso_account_id = 1\nsso_role_name = r\n"
        "[sso-session corp]\nsso_region = us-east-1\nsso_start_url = https://corp.example/start\n")
    token = {"accessToken": "x", "expiresAt": "2026-01-01T00:00:00Z"}
    (cache / f"{hashlib.sha1(b'corp').hexdigest()}.json").write_text(json.dumps(token))
    env = mounts.environment(access=None, AWS_CONFIG_FILE=str(tmp_path / "config"),
                             HOME=str(tmp_path))
    with pytest.raises(subprocess.CalledProcessError) as error:
        mount("bench", server=start(server), profile="corp", env=env)
    assert "has expired: run aws sso login --profile corp" in error.value.stderr
