"""CPU time of everything that takes part in a measurement, in the lab and on one processor of this machine."""

import ctypes
import os
import platform
import resource
import time
from pathlib import Path

import world

# Others that use more of the machine than this, before anything was begun, make figures noisy.
BUSY = 0.05
BUSY_SECONDS = 1.0
# How long an answer of the machine to the lab may take.
ANSWER_SECONDS_MAX = 20.0
TICKS = os.sysconf("SC_CLK_TCK")

# bpf(2): BPF_ENABLE_STATS, and for it BPF_STATS_RUN_TIME. The number of the call differs between machines.
BPF = {"x86_64": 321, "aarch64": 280}
ENABLE_STATS, RUN_TIME = 32, 0


def processors():
    """Idle seconds and all seconds of each processor since the start of the machine, by number."""
    found = {}
    for line in Path("/proc/stat").read_text().splitlines():
        name, *numbers = line.split()
        if name.startswith("cpu") and name != "cpu":
            # The time of guests, behind the eighth number, is in the others.
            ticks = [int(number) for number in numbers[:8]]
            found[int(name[3:])] = ((ticks[3] + ticks[4]) / TICKS, sum(ticks) / TICKS)
    return found


def busy():
    """Which part of the machine others use now; it takes a second."""
    before = processors()
    time.sleep(BUSY_SECONDS)
    after = processors()
    idle, total = (sum(after[cpu][at] - before[cpu][at] for cpu in before) for at in (0, 1))
    return 1 - idle / total if total else 0.0


class Processor:
    """One processor, to which this process and all that it begins is tied: packets too are worked on where they are sent.

    The kernel charges softirqs, which is where packets are forwarded, to the program that they interrupt or to `ksoftirqd`. So the clocks of
    our programs and of `ksoftirqd`, to the nanosecond, are all of it; what others do on the processor is not. Where the kernel was built with
    IRQ_TIME_ACCOUNTING it charges them to nobody: then much is missing, and `others` says so.
    """

    def __init__(self):
        self.cpu = max(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {self.cpu})
        self.ksoftirqd = next((pid for pid, name in kernel_threads() if name == f"ksoftirqd/{self.cpu}"), None)
        self.begin = self.reading()

    def seconds(self):
        """CPU time until now."""
        ended = resource.getrusage(resource.RUSAGE_CHILDREN)
        total = ended.ru_utime + ended.ru_stime
        for child in world.family_of(os.getpid())[1:]:
            total += clock_of(child)
        return total + (clock_of(self.ksoftirqd) if self.ksoftirqd else 0.0)

    def reading(self):
        idle, _ = processors()[self.cpu]
        return time.monotonic(), idle, self.seconds() + time.process_time()

    def others(self):
        """Which part of the processor's time until now is in no clock of ours and was not idle."""
        (begin, idle, used), (end, idle_now, used_now) = self.begin, self.reading()
        return max(0.0, 1 - (idle_now - idle + used_now - used) / (end - begin))


def clock_of(pid):
    """Seconds of CPU of a process, ended threads in it (clock_getcpuclockid(3))."""
    try:
        return time.clock_gettime(~pid << 3 | 2)
    except OSError:
        return 0.0


def kernel_threads():
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                yield int(entry.name), (entry / "comm").read_text().strip()
            except OSError:
                pass


class Lab:
    """The lab, seen from inside: what its one processor did, and not what others did on the machine. Files of a folder are the
    questions, and the machine's answers."""

    def __init__(self, folder):
        self.folder = Path(folder)
        self.number = 0

    def seconds(self):
        """CPU time of the lab until now."""
        self.number += 1
        answer = self.folder / f"answer{self.number}"
        (self.folder / f"ask{self.number}").touch()
        end = time.monotonic() + ANSWER_SECONDS_MAX
        while not answer.exists():
            if time.monotonic() > end:
                raise world.Trouble("the machine does not answer the lab")
            time.sleep(0.02)
        return float(answer.read_text())

    @staticmethod
    def others():
        """Nobody else is in there."""
        return 0.0


def answer(folder, inner, seconds):
    """Outside of the lab: answers until it has ended; gives its exit status. It may take so many seconds."""
    number = 1
    end = time.monotonic() + seconds
    while inner.poll() is None:
        if time.monotonic() > end:
            raise world.Trouble(f"it did not end within {seconds:.0f} s")
        if (folder / f"ask{number}").exists():
            aside = folder / "aside"
            aside.write_text(str(world.cpu_clock_of(inner.pid)))
            aside.rename(folder / f"answer{number}")
            number += 1
        time.sleep(0.005)
    return inner.returncode


class RunTime:
    """As long as it is there, the kernel measures BPF programs, which costs each packet some time."""

    def __init__(self):
        number = BPF.get(platform.machine())
        if number is None:
            raise world.Trouble(f"the number of bpf(2) on {platform.machine()} is not known here")
        attributes = ctypes.c_uint32(RUN_TIME)
        self.file = ctypes.CDLL(None, use_errno=True).syscall(number, ENABLE_STATS, ctypes.byref(attributes), 4)
        if self.file < 0:
            raise world.Trouble(f"bpf(BPF_ENABLE_STATS): {os.strerror(ctypes.get_errno())}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.close(self.file)

    @staticmethod
    def of(pid):
        """Nanoseconds and runs of the XDP program that a process has open."""
        XDP = "6"
        for entry in Path(f"/proc/{pid}/fdinfo").iterdir():
            lines = (line.split(":", 1) for line in entry.read_text().splitlines() if ":" in line)
            facts = {name: value.strip() for name, value in lines}
            if facts.get("prog_type") == XDP and "run_cnt" in facts:
                return int(facts["run_time_ns"]), int(facts["run_cnt"])
        raise world.Trouble("the director has no XDP program open")
