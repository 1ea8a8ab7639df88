"""From samples to tables. Pure: no clock, no files."""

from statistics import median

import measure

FIRST = "Baton"
FLOOR = "floor"


def heading(about, options):
    """What was measured where, as a list."""
    lines = [f"- {key}: {value}" for key, value in about.items()]
    lines.append(f"- rounds: {options.rounds}, {options.seconds:g} s each")
    return "\n".join(lines) + "\n\n"


def tables(results, over=""):
    """Two Markdown tables: CPU time a request, and memory a connection; `over` names what the connections speak."""
    parts = []
    timed = {name: samples for name, samples in results.items() if name != measure.MEMORY and samples}
    if timed:
        parts.append(cpu_table(timed))
    if results.get(measure.MEMORY):
        parts.append(memory_table(results[measure.MEMORY], over))
    return "\n".join(parts)


def cpu_table(results):
    names = in_order(results.values())
    peers = [name for name in names if name != FIRST]
    header = ["microseconds of CPU a request"] + [f"{name} (user + system)" for name in names]
    # What no proxy can save, by what the one that Baton is compared with takes.
    floor = [peer for peer in ("haproxy", "nginx") if FLOOR in names and peer in names][:1]
    header += [f"{FIRST} / {peer}" for peer in peers] + [f"{FLOOR} / {peer}" for peer in floor]
    rows = []
    for scenario, samples in results.items():
        row = [scenario]
        for name in names:
            own = [sample for sample in samples if sample["proxy"] == name]
            if not own:
                row.append("-")
                continue
            user, system = (median(sample[key] for sample in own) for key in ("user", "system"))
            row.append(f"{median(total(sample) for sample in own):.1f} ({user:.1f} + {system:.1f})")
        row += [ratio_text(ratios(samples, peer, total)) for peer in peers]
        row += [ratio_text(ratios(samples, peer, total, FLOOR)) for peer in floor]
        rows.append(row)
    return markdown(header, rows)


def memory_table(samples, over=""):
    names = in_order([samples])
    peers = [name for name in names if name != FIRST]
    row = [f"idle keep-alive {over}connection"]
    for name in names:
        kib = median(sample["bytes"] for sample in samples if sample["proxy"] == name) / 1024
        row.append(f"{kib:.2f} KiB")
    row += [ratio_text(ratios(samples, peer, lambda sample: sample["bytes"])) for peer in peers]
    return markdown(["resident memory"] + names + [f"{FIRST} / {peer}" for peer in peers], [row])


def total(sample):
    return sample["user"] + sample["system"]


def ratios(samples, peer, value, first=FIRST):
    """Baton's value by the peer's, for each round that has both; `first`: another one's."""
    by_round = {}
    for sample in samples:
        by_round.setdefault(sample["round"], {})[sample["proxy"]] = value(sample)
    pairs = [pair for pair in by_round.values() if first in pair and pair.get(peer, 0) > 0]
    return [pair[first] / pair[peer] for pair in pairs]


def ratio_text(values):
    """The median, and the lowest and highest of several rounds."""
    if not values:
        return "-"
    text = f"{median(values):.2f}"
    return text if len(values) == 1 else f"{text} ({min(values):.2f}-{max(values):.2f})"


def in_order(groups):
    """Names of proxies, Baton first."""
    names = dict.fromkeys(sample["proxy"] for samples in groups for sample in samples)
    return sorted(names, key=lambda name: (name != FIRST, name))


def markdown(header, rows):
    lines = [header, ["---"] + ["---:"] * (len(header) - 1), *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)
