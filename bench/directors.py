"""bench/direct's network, the directors in it, what they are loaded with, and the tables that come of it."""

import json
import os
import shutil
import subprocess
import time
from pathlib import Path
from statistics import median

import meters
import report
import world

# How long a director may take to serve, and a load to end; a load takes seconds.
START_SECONDS_MAX = 20.0
LOAD_SECONDS_MAX = 60.0

VIP, SERVER = "192.168.121.2", "192.168.121.11"
CLIENTS = 4
SIZES = (256 << 10, 1 << 10)
FLOWS = (1_000, 10_000, 100_000)
# What is fetched for a figure, and how many packets are sent: enough for half a second of CPU time.
FETCHES = {"machine": {256 << 10: 1_500, 1 << 10: 4_000}, "lab": {256 << 10: 300}}
PACKETS = {"machine": 500_000, "lab": 200_000}
# Packets that may get lost of a million, as when others hold the processor while a queue of a veth is full; and how often it is tried.
LOST_MAX = 5_000
TRIES = 3

# What nobody on the machine should see.
APART = """set -e
mount --make-rprivate /
mount -t tmpfs tmpfs /run && mkdir /run/netns
"""
NETWORK = """set -e
ip link set lo up
# A bridge asks the firewall of its namespace for each packet where the kernel has that; a switch does not.
sysctl -qw net.bridge.bridge-nf-call-iptables=0 net.bridge.bridge-nf-call-ip6tables=0 net.bridge.bridge-nf-call-arptables=0 2>/dev/null || true
ip link add br0 type bridge forward_delay 0 && ip link set br0 up
for name in client director server; do
    ip netns add $name
    ip link add v-$name type veth peer name eth0 netns $name
    ip link set v-$name master br0 up
    ip -n $name link set lo up && ip -n $name link set eth0 up
    ip netns exec $name sysctl -qw net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.eth0.rp_filter=0
done
ip -n client address add 192.168.121.100/24 dev eth0
ip -n director address add 192.168.121.1/24 dev eth0
ip -n director address add 192.168.121.2/32 dev eth0
ip -n director route add 10.0.0.0/8 dev eth0
ip -n server address add 192.168.121.11/24 dev eth0
ip netns exec server sysctl -qw net.ipv4.conf.all.arp_ignore=1 net.ipv4.conf.all.arp_announce=2
ip -n server address add 192.168.121.2/32 dev lo
ip netns exec server iptables-legacy -t raw -A PREROUTING -p udp -j DROP
mount -t bpf bpf /sys/fs/bpf
# Whole checksums, since a director that sends packets on in its driver does not complete them; the same for all.
ip netns exec client ethtool -K eth0 tx off >/dev/null
"""
NGINX = """daemon off; master_process off; error_log /dev/null; pid {folder}/nginx.pid;
events {{ worker_connections 1024; }}
http {{ access_log off; server {{ listen 80; root {folder}; }} client_body_temp_path {folder}; proxy_temp_path {folder};
fastcgi_temp_path {folder}; uwsgi_temp_path {folder}; scgi_temp_path {folder}; }}
"""
DIRECT = """listen web
    mode direct
    engine %s
    on-exit flush
    bind {vip}:80 interface eth0
    bind udp@{vip}:9 interface eth0
    balance roundrobin
    server one {server}
"""
# One file for haproxy and for Baton, word for word.
TCP = """global
    nbthread 1
defaults
    mode tcp
    timeout connect 5s
    timeout client 30s
    timeout server 30s
listen web
    bind {vip}:80
    server one {server}:80
"""
# The ways of each part, with their configurations; the first one is what others are compared with.
WAYS = {
    "machine": {
        "tcp": TCP, "haproxy tcp": TCP, "xdp driver": DIRECT % "xdp driver", "xdp stack": DIRECT % "xdp stack",
    },
    "lab": {"tcp": TCP, "ipvs": DIRECT % "ipvs", "xdp stack": DIRECT % "xdp stack"},
}


class Network:
    """A client, a director's machine and a server on a bridge, in this process's namespaces."""

    def __init__(self, folder, part):
        self.folder, self.part = folder, part
        subprocess.run(["cc", "-O2", "-o", folder / "flood", Path(__file__).with_name("flood.c")], check=True)
        for size in SIZES:
            (folder / str(size)).write_bytes(bytes(size))
        (folder / "nginx.conf").write_text(NGINX.format(folder=folder))

    def __enter__(self):
        subprocess.run(["sh", "-c", (APART if self.part == "machine" else "") + NETWORK], check=True)
        self.nginx = within("server", ["nginx", "-c", str(self.folder / "nginx.conf")])
        try:
            until(lambda: answers(SERVER), "the server does not answer")
            self.macs = {name: mac_of(name) for name in ("director", "server")}
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        end(self.nginx)


class Director:
    """A program that directs, until the block ends."""

    def __init__(self, network, way, program):
        self.way = way
        self.config = network.folder / "director.cfg"
        self.config.write_text(WAYS[network.part][way].format(vip=VIP, server=SERVER))
        self.words = [program, "-db", "-f", str(self.config)]

    def __enter__(self):
        # The driver of a veth takes what the other end sends by XDP only while it has GRO or a program itself.
        self.other_end("on" if self.way == "xdp driver" else "off")
        self.log = open(self.config.with_suffix(".log"), "w+")
        self.process = within("director", self.words, stderr=self.log, stdout=self.log)
        try:
            until(lambda: self.process.poll() is not None or answers(VIP), "the director does not serve")
            if self.process.poll() is not None:
                self.log.seek(0)
                said = [line for line in self.log.read().splitlines() if "[NOTICE]" not in line]
                raise world.Trouble(" ".join(said) or "it said nothing and ended")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        end(self.process)
        self.log.close()

    @staticmethod
    def other_end(gro):
        subprocess.run(["ethtool", "-K", "v-director", "gro", gro], check=True, stdout=subprocess.DEVNULL)


def within(name, words, **how):
    """Starts a program on one of the machines; it ends with this one."""
    words = ["nsenter", f"--net=/run/netns/{name}", *words]
    return subprocess.Popen(words, text=True, stdin=subprocess.DEVNULL, preexec_fn=world.end_with_parent, **how)


def end(process):
    process.terminate()
    try:
        process.wait(world.STOP_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def output(name, words):
    process = within(name, words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        said, wrong = process.communicate(timeout=LOAD_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        raise world.Trouble(f"{words[0]} did not end within {LOAD_SECONDS_MAX:.0f} s") from None
    finally:
        process.kill()
        process.wait()
    if process.returncode:
        raise world.Trouble(f"{' '.join(words)}: {wrong.strip() or said.strip()}")
    return said


def until(is_so, what):
    limit = time.monotonic() + START_SECONDS_MAX
    while not is_so():
        if time.monotonic() > limit:
            raise world.Trouble(f"{what} within {START_SECONDS_MAX:.0f} s")
        time.sleep(0.05)


def answers(address):
    words = ["curl", "-sfo", "/dev/null", "--noproxy", "*", "--max-time", "2", f"http://{address}/{SIZES[-1]}"]
    return within("client", words).wait() == 0


def link(name):
    return json.loads(output(name, ["ip", "-j", "-s", "link", "show", "eth0"]))[0]


def mac_of(name):
    return link(name)["address"]


def packets(name, direction):
    return link(name)["stats64"][direction]["packets"]


def fetch(network, meter, address, size):
    """Seconds for a flow, and packets of the client in it."""
    count = FETCHES[network.part][size]
    sent, begin = packets("client", "tx"), meter.seconds()
    said = output("client", ["ab", "-q", "-n", str(count), "-c", str(CLIENTS), f"http://{address}/{size}"])
    took, sent = meter.seconds() - begin, packets("client", "tx") - sent
    if "Failed requests:        0" not in said or "Non-2xx" in said:
        raise world.Trouble(f"ab: {said}")
    return {"seconds": took / count, "packets": sent / count}


def flood(network, meter, machine, address, flows):
    """Seconds for a packet, of flows that were seen before."""
    count = PACKETS[network.part]
    words = [str(network.folder / "flood"), "eth0", network.macs[machine], address, str(flows)]
    output("client", [*words, str(flows)])
    for _ in range(TRIES):
        before, begin = packets("server", "rx"), meter.seconds()
        output("client", [*words, str(count)])
        took = meter.seconds() - begin
        if (lost := count - (packets("server", "rx") - before)) * 1_000_000 <= LOST_MAX * count:
            return took / count
    raise world.Trouble(f"{lost} of {count} packets did not come to the server")


def loads(part):
    """The names of what is measured, each with its size or its flows."""
    sizes = {f"flow of {size >> 10} KiB": size for size in FETCHES[part]}
    return sizes, {f"packet, {flows:,} flows": flows for flows in FLOWS}


def measure_one(network, meter, way, turn):
    """Samples of one way, by load, each beside the same without a director, which comes first in every other turn."""
    sizes, floods = loads(network.part)
    places = [("straight", SERVER, "server"), ("seconds", VIP, "director")]
    found = {}
    for name, size in sizes.items():
        taken = {key: fetch(network, meter, address, size) for key, address, _ in places[:: -1 if turn % 2 else 1]}
        found[name] = {key: one["seconds"] for key, one in taken.items()} | {"packets": taken["seconds"]["packets"]}
    for name, flows in floods.items() if "tcp" not in way else ():
        found[name] = {key: flood(network, meter, machine, address, flows) for key, address, machine in places} | {"packets": 1}
    return found


def measure(network, meter, program, rounds, limit):
    """Samples of each round by way and load; why ways are missing; and what a packet costs in the program."""
    samples, missing, longest = [], {}, 0.0
    begin = time.monotonic()
    for number in range(rounds):
        if time.monotonic() + longest > limit:
            print(f"no more rounds than {number}: this machine is slower than was thought", flush=True)
            break
        before = time.monotonic()
        found = {}
        for way in WAYS[network.part]:
            if way in missing and not any(way in sample for sample in samples):
                continue
            try:
                with Director(network, way, "haproxy" if way.startswith("haproxy") else program):
                    found[way] = measure_one(network, meter, way, number)
            except world.Trouble as trouble:
                missing[way] = str(trouble)
        samples.append(found)
        longest = max(longest, time.monotonic() - before)
        print(f"{network.part}: round {number + 1} of {rounds}, {time.monotonic() - begin:.0f} s", flush=True)
    found = {"samples": samples, "missing": missing}
    if network.part == "machine" and any("xdp driver" in sample for sample in samples):
        try:
            found["program"] = in_program(network, meter, program)
        except world.Trouble as trouble:
            missing["the program's own cost"] = str(trouble)
    return found


def in_program(network, meter, program):
    """Nanoseconds in the BPF program for a packet, by load."""
    found = {}
    with Director(network, "xdp driver", program) as director, meters.RunTime() as run_time:
        for name, flows in loads(network.part)[1].items():
            nanoseconds, runs = run_time.of(director.process.pid)
            flood(network, meter, "director", VIP, flows)
            after, runs_after = run_time.of(director.process.pid)
            found[name] = (after - nanoseconds) / (runs_after - runs)
    return found


def added(samples, way, load):
    """What the way adds to a load, in each round that has it: seconds, and packets of the client for which it does."""
    rounds = [found[way][load] for found in samples if load in found.get(way, {})]
    return [(one["seconds"] - one["straight"], one["packets"]) for one in rounds]


def table(part, found):
    """What was found, for people."""
    samples, ways = found["samples"], list(WAYS[part])
    bases = [way for way in ("tcp", "ipvs") if way in ways]
    head = ["added by a director", "way", "us", "packets a CPU second"] + [f"of {base}" for base in bases]
    rows = []
    sizes, floods = loads(part)
    for load in [*sizes, *floods]:
        for way in ways:
            costs = added(samples, way, load)
            if not costs:
                continue
            seconds, count = median(cost for cost, _ in costs), median(packets for _, packets in costs)
            row = [load, way, microseconds(seconds)]
            # A difference of two large figures may be lost in noise.
            row += [f"{count / seconds:,.0f}" if seconds > 0 else "noise"]
            row += [ratio(samples, way, base, load, "flow of 256 KiB") if base != way else "" for base in bases]
            rows.append(row)
    lines = [f"{part}, rounds: {len(samples)}" + aside(found), "", report.markdown(head, rows)]
    lines.append("Ratios of costs; a packet's are to what tcp costs for each packet of a client in a flow of 256 KiB.")
    for load, nanoseconds in found.get("program", {}).items():
        lines.append(f"{load}: {nanoseconds:.0f} ns of it in the program, by the kernel's own measure")
    for way, why in found["missing"].items():
        rounds = sum(way not in one for one in samples)
        lines.append(f"{way} is not in {rounds} of the rounds: {why}")
    return "\n".join(lines)


def microseconds(seconds):
    """With three digits."""
    value = seconds * 1e6
    return f"{value:,.{2 if value < 10 else 1 if value < 100 else 0}f}"


def ratio(samples, way, base, load, flow):
    """What a way costs for what another one costs, within a round: the median, the lowest and the highest."""
    shown = []
    for one in samples:
        mine, other = added([one], way, load), added([one], base, load)
        if mine and not other:
            # Nothing in userspace forwards packets: one of a flow is what it costs there.
            mine, other = added([one], way, load), [(seconds / count, 1) for seconds, count in added([one], base, flow)]
        if mine and other and other[0][0] > 0:
            shown.append(mine[0][0] / other[0][0])
    return report.ratio_text(shown) if shown and median(shown) > 0 else ""


def aside(found):
    others = found.get("others", 0.0)
    return "" if others < meters.BUSY else f" (WARNING: {others:.0%} of the processor's time was not ours: figures are noisy)"
