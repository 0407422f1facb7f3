# SPDX-License-Identifier: Apache-2.0
"""bench/train/report.py: what it writes is what the raw data say."""

import json
import pathlib
import subprocess
import sys

import pytest

REPORT = pathlib.Path(__file__).resolve().parents[2] / "bench" / "train" / "report.py"
SAMPLES = 2000
MACHINE = {"cpu": "A CPU", "cores": 2, "memory_gib": 8, "kernel": "6.1", "os": "Debian 12",
           "versions": {"s3fs": "1.90", "os2g": "0.1.0"}}


def row(rate, host, device, step=None, requests=SAMPLES):
    """CPU in seconds for 1,000 samples."""
    host, device = host * SAMPLES / 1000, device * SAMPLES / 1000
    found = {"rate": rate, "workers": 8, "host_cpu_s": host, "device_cpu_s": device,
             "total_cpu_s": host + device, "store_cpu_s": 0.4, "requests": requests,
             "bytes": SAMPLES * 150528}
    return found if step is None else {**found, "min_step_ms": step}


def compared():
    return {
        "s3fs": row(100, 8, 0, 320, 2 * SAMPLES), "s3fs_on_device": row(150, 2, 6, 220),
        "s3connector": row(200, 4, 0, 160), "plan": row(1200, 0.5, 0.3, 26), "gdd": row(1600, 0.2, 0.3, 20),
        "at_s3fs_40": {"s3fs": 20.0, "s3connector": 10.0, "gdd": 8.2},
        "at_s3connector_40": {"s3fs": 20.0, "s3connector": 10.0, "gdd": 4.1},
    }


class Report:
    """The directories that it reads and writes, and what it has written."""

    def __init__(self, top):
        self.results, self.docs = top / "results", top / "docs"
        for directory in (self.results, self.docs):
            directory.mkdir()

    def put(self, section, result, **more):
        raw = {"section": section, "machine": MACHINE, "date": "2026-11-30", "store": "os2g-s3d", "tls": False,
               "latency": "lognormal:10ms,0.5", "samples": SAMPLES, "batch": 32, "result": result,
               "records": [{}] * 7, **more}
        (self.results / f"{section}.json").write_text(json.dumps(raw))

    def run(self, *options):
        command = [sys.executable, REPORT, "--results", self.results, "--docs", self.docs, *options]
        return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60)

    def write(self):
        done = self.run("--no-plots")
        assert (done.returncode, done.stderr) == (0, "")
        return (self.docs / "results.md").read_text()


@pytest.fixture
def report(tmp_path):
    return Report(tmp_path)


def rows(text, heading):
    """{first cell: the others} of the tables below a heading."""
    below = text.split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]
    lines = [line.strip("| ").split(" | ") for line in below.splitlines() if line.startswith("|")]
    return {cells[0]: cells[1:] for cells in lines}


def verdicts(text):
    """{(comparison, against): (measured, holds)}"""
    below = text.split("## What it must show\n", 1)[1].split("\nOf these ", 1)[0]
    lines = [line[2:-2].split(" | ") for line in below.splitlines() if line.startswith("|")]
    return {(cells[0], cells[1]): tuple(cells[3:]) for cells in lines[2:]}


def test_thresholds_that_hold_say_so_with_what_was_measured(report):
    report.put("compare", compared())
    found = verdicts(report.write())
    assert found["epoch time, its accelerator 40 % busy: GDD", "S3FS"] == ("0.410 ×", "yes")
    assert found["epoch time, its accelerator 40 % busy: GDD", "S3 Connector"] == ("0.410 ×", "yes")
    assert found["shortest step: GDD", "S3 Connector"] == ("0.125 ×", "yes")
    assert found["host CPU: GDD", "S3FS"] == ("0.025 ×", "yes")
    assert found["host and device CPU together: GDD", "S3 Connector"] == ("0.125 ×", "yes")
    assert found["host and device CPU together: mount + plan", "S3 Connector"] == ("0.200 ×", "yes")
    assert found["rate: mount + plan", "OS2G GDD"] == ("0.750 ×", "yes")


def test_a_threshold_that_does_not_hold_says_so(report):
    result = compared()
    result["gdd"] = row(4000, 0.5, 2, 90)
    result["at_s3fs_40"]["gdd"] = 13.2
    report.put("compare", result)
    text = report.write()
    found = verdicts(text)
    assert found["epoch time, its accelerator 40 % busy: GDD", "S3FS"] == ("0.660 ×", "**no**")
    assert found["shortest step: GDD", "S3 Connector"] == ("0.562 ×", "**no**")
    assert found["shortest step: GDD", "S3FS"] == ("0.281 ×", "yes")
    assert found["host CPU: GDD", "S3 Connector"] == ("0.125 ×", "**no**")
    assert found["host and device CPU together: GDD", "S3 Connector"] == ("0.625 ×", "**no**")
    assert found["rate: mount + plan", "OS2G GDD"] == ("0.300 ×", "**no**")
    assert "Of these 6 hold, 5 do not, and 6 were not run." in text


def test_the_naive_offload_is_reported_without_a_threshold(report):
    report.put("compare", compared())
    found = verdicts(report.write())
    assert found["naive offload, rate: S3FS on the device", "S3FS"] == ("1.50 ×", "–")
    assert found["naive offload, host CPU: S3FS on the device", "S3FS"] == ("0.250 ×", "–")


def test_one_core_of_ours_is_held_against_two_of_the_peers(report):
    report.put("controls", {"s3fs@both cores": row(180, 8, 0), "s3connector@both cores": row(400, 4, 0),
                            "gdd@host core": row(300, 0.5, 0)})
    text = report.write()
    found = verdicts(text)
    assert found["rate, confined to the host's core: GDD", "S3FS with both cores"] == ("1.67 ×", "yes")
    assert found["rate, confined to the host's core: GDD", "S3 Connector with both cores"] == \
        ("0.750 ×", "**no**")
    assert rows(text, "Controls: who has which core")["OS2G GDD, host core"][0] == "300"


def test_cpu_is_told_for_1000_samples_and_requests_for_one(report):
    report.put("compare", compared())
    cells = rows(report.write().split("How long an epoch")[0], "Loading alone")["S3FS"]
    # samples/s, workers, CPU of host, device, both, store, busy cores, requests, KiB, shortest step
    assert cells == ["100", "8", "8.00", "0", "8.00", "0.200", "0.82", "2.00", "147", "320"]


def test_the_papers_figures_stand_beside_ours(report):
    report.put("compare", compared())
    text = report.write()
    assert "| S3FS | −34.3 % | −59.0 % | −61.9 % | −97.5 % | −93.8 % |" in text
    assert "| S3 Connector | −50.4 % | −59.0 % | −57.7 % | −95.0 % | −87.5 % |" in text


def trained(first, last, digest):
    return {"rate": 10, "seconds": 60, "workers": 4, "host_cpu_s": 50, "device_cpu_s": 1, "total_cpu_s": 51,
            "requests": SAMPLES, "loss_first": first, "loss_last": last, "digest": digest}


def test_training_whose_loss_rises_or_whose_batches_differ_is_named(report):
    report.put("cpu", {"jpeg": {"s3fs": trained(2.3, 1.9, "aa"), "gdd": trained(2.3, 1.9, "aa")},
                       "tensors": {"s3fs": trained(2.3, 2.4, "aa"), "plan": trained(2.3, 1.9, "aa"),
                                   "gdd": trained(2.3, 1.9, "bb")}})
    text = report.write()
    found = verdicts(text)
    assert found["ResNet18, JPEG files: loss falls", ""] == ("with every client", "yes")
    assert found["ResNet18, JPEG files: same seed, same batches", ""] == ("with every client", "yes")
    assert found["ResNet18, ready tensors: loss falls", ""] == ("not with S3FS", "**no**")
    assert found["ResNet18, ready tensors: same seed, same batches", ""] == ("not with OS2G GDD", "**no**")
    assert "The loss did not fall with S3FS." in text


def test_an_order_of_its_own_is_told_and_is_no_fault(report):
    report.put("cpu", {"jpeg": {"s3fs": trained(2.3, 1.9, "aa"), "gdd": trained(2.3, 1.9, "aa"),
                                "webdataset": trained(2.3, 1.9, "bb")}})
    text = report.write()
    assert verdicts(text)["ResNet18, JPEG files: same seed, same batches", ""] == (
        "with every client; of WebDataset the same samples", "yes")
    assert "All clients gave the model the same batches" not in text


def test_how_many_samples_an_epoch_at_40_had_is_told(report):
    report.put("compare", compared(), records=[{"what": "at_s3fs_40", "samples": 2000},
                                               {"what": "at_s3connector_40", "samples": 8000}])
    text = " ".join(report.write().split())
    assert "2,000 samples at S3FS's and 8,000 samples at S3 Connector's" in text


def test_the_shortest_busy_step_of_a_curve_is_told(report):
    def points(*values):
        return [{"step_s": step, "utilisation": value, "seconds": 1, "rate": 1}
                for step, value in zip((0, 0.02, 0.1), values)]

    report.put("curve", {"s3fs": points(0, 0.1, 0.5), "gdd": points(0, 0.96, 1)})
    text = report.write()
    assert "none with S3FS and 20.0 ms with OS2G GDD." in " ".join(text.split())
    assert rows(text, "Utilisation over step time")["20.0"] == ["10 %", "96 %"]


def test_each_idea_is_told_beside_the_one_above_it(report):
    report.put("ablation", [{"idea": "client", **row(200, 1, 0)}, {"idea": "+ plan", **row(500, 1, 0)}])
    found = rows(report.write(), "What each idea brings")
    assert (found["client"][-1], found["+ plan"][-1]) == ("–", "2.50")


def test_a_throttled_device_is_told_by_its_part(report):
    report.put("device_curve", {"1": {"gdd": row(1600, 0.2, 0.3)}, "0.25": {"gdd": row(400, 0.2, 0.3)}})
    text = report.write()
    assert "instead of 1: 25 % with OS2G GDD." in " ".join(text.split())
    assert "| OS2G GDD | 1,600 | 400 |" in text


def test_what_was_not_run_is_left_out_and_said(report):
    text = report.write()
    assert all(holds in ("not run", "–") or measured == "–" for measured, holds in verdicts(text).values())
    assert text.count("\nNot run.\n") == 8


def test_a_client_that_was_not_run_is_left_out(report):
    result = compared()
    del result["s3connector"], result["at_s3connector_40"], result["at_s3fs_40"]["s3connector"]
    report.put("compare", result)
    text = report.write()
    assert "S3 Connector" not in rows(text, "Loading alone")
    assert verdicts(text)["host CPU: GDD", "S3 Connector"] == ("–", "not run")


def test_a_store_that_does_not_count_bytes_leaves_the_cell_empty(report):
    report.put("compare_ceph", {"gdd": {**row(1600, 0.2, 0.3), "bytes": None}}, store="ceph", latency=None)
    text = report.write()
    assert rows(text, "Loading alone, from Ceph's gateway")["OS2G GDD"][-2] == "–"
    assert "| Ceph's gateway | – |" in text


def test_check_finds_a_document_that_was_changed_by_hand(report):
    report.put("controls", {"gdd@host core": row(300, 0.5, 0)})
    assert report.run("--check").returncode == 1
    text = report.write()
    assert report.run("--check").returncode == 0
    (report.docs / "results.md").write_text(text.replace("| 300 |", "| 3,000 |"))
    done = report.run("--check")
    assert done.returncode == 1
    assert "is not what bench/train/report.py writes" in done.stdout


def test_check_finds_a_plot_that_is_missing(report):
    report.put("ablation", [{"idea": "client", **row(200, 1, 0)}])
    report.write()
    done = report.run("--check")
    assert done.returncode == 1
    assert "ablation.svg is missing" in done.stdout


def test_check_has_nothing_to_say_before_anything_was_run(report):
    assert report.run("--check").returncode == 0


def test_the_same_results_give_the_same_plots(report):
    pytest.importorskip("matplotlib")
    report.put("compare", compared())
    report.put("ablation", [{"idea": "client", **row(200, 1, 0)}])
    plots = []
    for _ in range(2):
        assert report.run().returncode == 0
        plots.append({file.name: file.read_bytes() for file in (report.docs / "results").iterdir()})
    assert plots[0] == plots[1]
    assert set(plots[0]) == {"cpu.svg", "cpu.png", "ablation.svg", "ablation.png"}
    assert report.run("--check").returncode == 0
