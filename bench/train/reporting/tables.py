# SPDX-License-Identifier: Apache-2.0
"""The sections of the document: a table each, and what can be said of its figures."""

from . import verdicts
from .markdown import NONE, listed, number, percent, table, times
from .results import CLIENTS, known, ratio

DATA = {"jpeg": "JPEG files", "tensors": "ready tensors"}
BUSY = 0.95
LOAD = ["samples/s", "workers", "host CPU s", "device CPU s", "both", "store CPU s", "busy cores",
        "requests a sample", "KiB a sample"]


def not_run(title):
    return [f"## {title}", "Not run."]


def image(name, text):
    return f"![{text}](results/{name}.svg)"


def load(section, row):
    """The cells of LOAD."""
    cpu = [section.per_thousand(row, f"{side}_cpu_s") for side in ("host", "device", "total", "store")]
    rate, sides, store = row.get("rate"), cpu[2], cpu[3]
    busy = None if None in (rate, sides, store) else (sides + store) * rate / 1000
    requests, size = section.per_thousand(row, "requests"), section.per_thousand(row, "bytes")
    return [number(rate), row.get("workers", NONE), *map(number, cpu), number(busy, 2),
            number(ratio(requests, 1000)), number(ratio(size, 1000 * 1024))]


def loads(section, rows, first="client", extra=()):
    """rows: [(label, row)]. extra: [(head, function of a row)] of columns more."""
    heads = [first, *LOAD, *(name for name, _ in extra)]
    return table(heads, [[label, *load(section, row), *(cell(row) for _, cell in extra)]
                         for label, row in rows])


def by_client(rows):
    return [(CLIENTS[name], row) for name, row in known(rows)]


def against_peers(section):
    """How GDD does beside the peers, as far as it was measured."""
    ours, said = section.result.get("gdd"), []
    for peer, label in verdicts.PEERS.items():
        theirs = section.result.get(peer)
        if ours and theirs:
            rate, host, total = (times(ratio(ours.get(name), theirs.get(name)))
                                 for name in ("rate", "host_cpu_s", "total_cpu_s"))
            said.append(f"Against {label}, {CLIENTS['gdd']} has {rate} × the rate, {host} × the host's CPU "
                        f"and {total} × that of host and device.")
    return " ".join(said)


def epoch_times(section):
    """[] or a table: each client's epoch at the steps that keep the peers' accelerators busy."""
    peers = [peer for peer in verdicts.PEERS if section.result.get(f"at_{peer}_40")]
    clients = [name for name in CLIENTS if any(name in section.result[f"at_{p}_40"] for p in peers)]
    heads = ["client"]
    for peer in peers:
        heads += [f"at {verdicts.PEERS[peer]}'s 40 %, s", f"× {verdicts.PEERS[peer]}"]
    rows = []
    for name in clients:
        cells = [CLIENTS[name]]
        for peer in peers:
            cells += [number(section.figure(f"at_{peer}_40", name)),
                      times(verdicts.epoch_time(section, peer, name))]
        rows.append(cells)
    said = "How long an epoch takes at the same step time for all"
    sizes = {peer: section.samples_of(f"at_{peer}_40") for peer in peers}
    if all(sizes.values()):
        said += "; " + listed(f"{number(n)} samples at {verdicts.PEERS[peer]}'s" for peer, n in sizes.items())
    return [f"{said}:", table(heads, rows)] if rows else []


def comparison(name, title, about, plot=False):
    def parts(results):
        section = results.get(name)
        rows = by_client(section.result) if section else []
        if not rows:
            return not_run(title)
        step = ("shortest step, ms", lambda row: number(row.get("min_step_ms")))
        words = " ".join(filter(None, [about, against_peers(section)]))
        picture = [image("cpu", "CPU for 1,000 samples, of host and device")] if plot else []
        return [f"## {title}", words, loads(section, rows, extra=[step]), *picture, *epoch_times(section)]
    return parts


def controls(results):
    title = "Controls: who has which core"
    section = results.get("controls")
    rows = [(name, row) for name, row in section.result.items() if row] if section else []
    if not rows:
        return not_run(title)

    def label(name):
        client, _, where = name.partition("@")
        return f"{CLIENTS.get(client, client)}, {where}"

    said = []
    for ours in ("mount", "plan", "gdd"):
        found = [(label, results.ratio("controls", "rate", f"{ours}@host core", f"{peer}@both cores"))
                 for peer, label in verdicts.PEERS.items()]
        beside = [f"{times(value)} × that of {label}" for label, value in found if value is not None]
        if beside:
            said.append(f"the rate of {CLIENTS[ours]} is {listed(beside)}")
    about = ("The device core given to clients that are not offloaded, and taken from OS2G, whose daemon then "
             "shares the host's core with the training job.")
    if said:
        about += f" With one core against two {'; '.join(said)}."
    return [f"## {title}", about, loads(section, [(label(name), row) for name, row in rows])]


def curve(results):
    title = "Utilisation over step time"
    section = results.get("curve")
    clients = known(section.result) if section else []
    if not clients:
        return not_run(title)
    cells = {name: {round(1e3 * p["step_s"], 3): p["utilisation"] for p in points}
             for name, points in clients}
    steps = sorted({step for points in cells.values() for step in points if step > 0})
    rows = [[number(step), *(percent(cells[name].get(step)) for name, _ in clients)] for step in steps]
    said = []
    for name, points in cells.items():
        busy = [step for step, value in sorted(points.items()) if step > 0 and value >= BUSY]
        said.append(f"{number(busy[0])} ms with {CLIENTS[name]}" if busy else f"none with {CLIENTS[name]}")
    return [f"## {title}",
            "How busy an accelerator is kept whose step takes so long. The shortest of these step times at "
            f"which it was busy for 95 % of the time: {listed(said)}.",
            image("utilisation", "utilisation over step time, by client"),
            table(["step, ms", *(CLIENTS[name] for name, _ in clients)], rows, words=0)]


def ablation(results):
    title = "What each idea brings"
    section = results.get("ablation")
    rows = [row for row in section.result if row] if section else []
    if not rows:
        return not_run(title)
    gains = [ratio(b.get("rate"), a.get("rate")) for a, b in zip(rows, rows[1:])]
    cells = [[row["idea"], *load(section, row), times(gain)] for row, gain in zip(rows, [None, *gains])]
    about = "OS2G's ideas added one by one; each row has those above it, too."
    if len(rows) > 1:
        rate, host = (times(ratio(rows[-1].get(name), rows[0].get(name))) for name in ("rate", "host_cpu_s"))
        about += f" The last row has {rate} × the first one's rate, and takes {host} × its host CPU."
    return [f"## {title}", about, image("ablation", "rate and CPU as ideas are added"),
            table(["idea", *LOAD, "× the rate above"], cells)]


def device_curve(results):
    title = "A weaker device"
    section = results.get("device_curve")
    parts = [key for key, rows in section.result.items() if known(rows)] if section else []
    parts.sort(key=float, reverse=True)
    if not parts:
        return not_run(title)
    clients = [name for name in CLIENTS if any(section.result[part].get(name) for part in parts)]

    def cells(figure):
        return [[CLIENTS[name], *(figure(section.result[part].get(name) or {}) for part in parts)]
                for name in clients]

    said = []
    for name in clients:
        rates = [(section.result[part].get(name) or {}).get("rate") for part in (parts[-1], parts[0])]
        if None not in rates and len(parts) > 1:
            said.append(f"{percent(ratio(*rates))} with {CLIENTS[name]}")
    about = "A DPU's cores are slower than a host's: the device core throttled to a part of its time."
    if said:
        about += (f" What is left of the rate with {parts[-1]} of the core instead of {parts[0]}: "
                  f"{listed(said)}.")
    peers = [(label, results.figure("compare", peer, "rate")) for peer, label in verdicts.PEERS.items()]
    if all(rate for _, rate in peers):
        had = listed(f"{label} had {number(rate)}" for label, rate in peers)
        about += f" In the comparison above, {had} samples/s."
    heads = ["client", *(f"{part} of a core" for part in parts)]
    return [f"## {title}", about, image("device_curve", "rate by what the device has of its core"),
            "Samples/s:", table(heads, cells(lambda row: number(row.get("rate")))),
            "Host and device CPU s for 1,000 samples:",
            table(heads, cells(lambda row: number(section.per_thousand(row, "total_cpu_s"))))]


def training(results):
    title = "ResNet18 on the host's core"
    section = results.get("cpu")
    sets = [(label, section.result[name]) for name, label in DATA.items()
            if known(section.result.get(name) or {})] if section else []
    if not sets:
        return not_run(title)
    parts = [f"## {title}",
             "Reading, decoding where it is JPEG, forward and backward, for real: the model takes the core that "
             "the peers' clients need as well. *Batches* is a digest of what the model was given."]
    for label, rows in sets:
        cells = []
        for name, row in known(rows):
            cpu = [number(section.per_thousand(row, f"{side}_cpu_s"))
                   for side in ("host", "device", "total")]
            cells.append([CLIENTS[name], number(row.get("rate")), number(row.get("seconds")),
                          row.get("workers", NONE), *cpu,
                          number(ratio(section.per_thousand(row, "requests"), 1000)),
                          f"{number(row.get('loss_first'))} → {number(row.get('loss_last'))}",
                          f"`{str(row.get('digest'))[:8]}`"])
        parts += [f"### {label[0].upper()}{label[1:]}", said_of_training(rows),
                  table(["client", "samples/s", "epoch, s", "workers", "host CPU s", "device CPU s", "both",
                         "requests a sample", "loss, first → last", "batches"], cells)]
    return parts


def said_of_training(rows):
    risen, other, unknown = ([CLIENTS[c] for c in found] for found in verdicts.training(rows))
    said = [f"The loss did not fall with {listed(risen)}." if risen
            else "The loss falls with every client."]
    if other:
        said.append(f"Not the same batches as most clients had {listed(other)}.")
    if unknown:
        said.append(f"What batches {listed(unknown)} had was not told.")
    own = [CLIENTS[name] for name in verdicts.own_order(rows)]
    if not other + unknown and own:
        said.append(f"{listed(own)} gave the model the same samples in an order of its own, all others the "
                    "same batches.")
    elif not other + unknown:
        said.append("All clients gave the model the same batches.")
    rate = {name: row["rate"] for name, row in known(rows) if row.get("rate")}
    beside = [f"{times(ratio(rate['gdd'], rate[name]))} × that of {CLIENTS[name]}"
              for name in ("s3fs", "s3connector", "local") if "gdd" in rate and name in rate]
    if beside:
        said.append(f"The rate of GDD is {listed(beside)}.")
    return " ".join(said)


ALL = (
    comparison("compare", "Loading alone", "Nothing is decoded and nobody computes.", plot=True),
    curve, ablation, device_curve, controls,
    comparison("compare_tls", "Loading alone, over TLS", "The same over HTTPS."),
    comparison("compare_ceph", "Loading alone, from Ceph's gateway", "The same with another store."),
    training,
)
