"""The place of the measurements: namespaces, CPUs, and processes that end with it."""

import ctypes
import datetime
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

# Longest time for a server to listen, and to end after being asked to.
START_SECONDS_MAX = 10.0
STOP_SECONDS_MAX = 3.0

CONGESTION = "cubic"
TICKS = os.sysconf("SC_CLK_TCK")


class Trouble(Exception):
    """The measurement cannot go on; the text says why."""


def run_in_namespaces(mark, folder):
    """Runs this program again in namespaces for network and processes, with `mark` naming its folder; its exit code.

    When either process goes, the kernel ends all processes of the inner namespace, whatever happened to them.
    """
    words = ["unshare", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]
    if os.geteuid() != 0:
        words.append("--map-root-user")
    inner = subprocess.Popen(
        words + [sys.executable, *sys.argv],
        env={**os.environ, mark: str(folder)},
        preexec_fn=end_with_parent,
    )
    # unshare itself holds SIGTERM back; Ctrl-C reaches everybody, and the inner program tidies up.
    for name in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(name, lambda *_: sys.exit(143))
    try:
        return inner.wait()
    except KeyboardInterrupt:
        try:
            inner.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            pass
        return 130
    finally:
        inner.kill()
        inner.wait()


def lay_network():
    """Brings up loopback with the congestion control that the peers are tuned for; returns the one in force.

    One that paces its packets (bbr) would charge its timers to the proxies.
    """
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    for name, value in (("ip_local_port_range", "2048 65000"), ("tcp_max_syn_backlog", "8192")):
        try:
            Path(f"/proc/sys/net/ipv4/{name}").write_text(value)
        except OSError:
            pass  # Only large counts of connections per second need it.
    try:
        Path("/proc/sys/net/ipv4/tcp_congestion_control").write_text(CONGESTION)
    except OSError:
        # Not every kernel lets a namespace choose its default; each route may still have its own.
        for target in ("127.0.0.0/8", "127.0.0.1"):
            words = f"ip route replace local {target} dev lo table local proto kernel scope host src 127.0.0.1"
            subprocess.run([*words.split(), "congctl", CONGESTION], stderr=subprocess.DEVNULL)
    return congestion_in_force()


def congestion_in_force():
    with socket.create_server(("127.0.0.1", 0)) as listening, socket.create_connection(listening.getsockname()) as end:
        return end.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\0").decode()


def today():
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d")


def first_line(words):
    """The first line with a digit that a program prints about itself."""
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, stdin=subprocess.DEVNULL)
    for line in done.stdout.splitlines():
        if re.search(r"\d", line):
            # Addresses and copyright lines say nothing about the version.
            return re.sub(r"\s*(https?://\S*|Copyright.*|-\s*$)", "", line).strip(" -")
    return "unknown"


class World:
    """Owns the processes of a run. As a context it ends them all, by their ids."""

    def __init__(self, folder):
        self.folder = folder
        self.cpus = sorted(os.sched_getaffinity(0))
        self.proxy_cpu = self.cpus[0]
        self.load_cpu = self.cpus[1 % len(self.cpus)]
        self.running = []

    def __enter__(self):
        for name in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(name, lambda *_: sys.exit(143))
        return self

    def __exit__(self, *_):
        for process in list(self.running):
            self.stop(process)

    def start(self, words, cpu, name):
        """Starts a server on a CPU; what it says goes to a file of that name."""
        program = shutil.which(words[0]) or words[0]
        with open(self.folder / f"{name}.log", "ab") as log:
            process = subprocess.Popen(
                [program, *words[1:]],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                preexec_fn=lambda: settle(cpu),
            )
        process.label = name
        self.running.append(process)
        return process

    def wait_for(self, process, port):
        """Returns when the port accepts connections."""
        until = time.monotonic() + START_SECONDS_MAX
        while True:
            if process.poll() is not None:
                raise Trouble(f"{process.label} ended at once:\n{self.said(process)}")
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                return
            except OSError:
                if time.monotonic() > until:
                    raise Trouble(f"{process.label} does not listen on port {port}:\n{self.said(process)}") from None
                time.sleep(0.01)

    def stop(self, process):
        """Ends a process and its children."""
        family = family_of(process.pid)
        process.terminate()
        try:
            process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            for pid in family:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            process.wait()
        self.running.remove(process)

    def said(self, process):
        return (self.folder / f"{process.label}.log").read_text(errors="replace")[-2000:]


def settle(cpu):
    """In a new process: its CPU, and its end when this program ends."""
    os.sched_setaffinity(0, {cpu})
    end_with_parent()


def end_with_parent():
    PR_SET_PDEATHSIG = 1
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def family_of(pid):
    """A process and its descendants that live."""
    found = [pid]
    for parent in found:
        try:
            for task in os.listdir(f"/proc/{parent}/task"):
                children = Path(f"/proc/{parent}/task/{task}/children").read_text()
                found += [int(child) for child in children.split()]
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def cpu_of(pid):
    """Seconds in user and system mode that a process and its descendants have used, ended children included."""
    user = system = 0
    for member in family_of(pid):
        try:
            # The name in parentheses may hold spaces; fields are counted from behind it (proc(5), utime is field 14).
            fields = Path(f"/proc/{member}/stat").read_text().rsplit(")", 1)[1].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        user += int(fields[11]) + int(fields[13])
        system += int(fields[12]) + int(fields[14])
    return user / TICKS, system / TICKS


def resident_of(pid):
    """Resident bytes of a process and its descendants."""
    total = 0
    for member in family_of(pid):
        try:
            status = Path(f"/proc/{member}/status").read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue
        found = re.search(r"^VmRSS:\s+(\d+) kB", status, re.M)
        total += int(found.group(1)) * 1024 if found else 0
    return total


def cpu_clock_of(pid):
    """Seconds of CPU that a process and its descendants have used, to the nanosecond for those that live.

    Ended threads are in it, and ended children as far as they were waited for, by the tick.
    """
    total = 0.0
    for member in family_of(pid):
        try:
            # The clock of another process (clock_getcpuclockid(3)).
            total += time.clock_gettime(~member << 3 | 2)
            fields = Path(f"/proc/{member}/stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        total += (int(fields[13]) + int(fields[14])) / TICKS
    return total


def proportional_of(pid):
    """Bytes of a process and its descendants; what several of them share is counted once (Pss)."""
    total = 0
    for member in family_of(pid):
        try:
            text = Path(f"/proc/{member}/smaps_rollup").read_text()
        except OSError:
            continue
        total += int(re.search(r"^Pss:\s+(\d+) kB", text, re.M).group(1)) * 1024
    return total
