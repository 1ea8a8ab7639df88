"""The measurements: load in rounds with rotating order, CPU time before and after, memory before and after."""

import dataclasses
import re
import socket
import subprocess
import time

import proxies
import world

MEMORY = "memory"
MEMORY_ROUNDS_MAX = 3

# Before each measurement, so that connections, pools and code are warm.
WARM_SECONDS = 0.3
WARM_REQUESTS = 200

# What wrk may take beyond its time until it is ended.
WRK_GRACE_SECONDS = 15.0


@dataclasses.dataclass(frozen=True)
class Scenario:
    text: str
    path: str = "/small"
    port: int = proxies.HTTP_PORT
    connections: int = 32
    close: bool = False
    body: int = 0
    answer: int = len(proxies.SMALL)
    # Sections that only this scenario has, in haproxy's language: a frontend at proxies.OWN_PORT. nginx has no part in it.
    sections: str = ""


SCENARIOS = {
    "keep-alive": Scenario("GET, 128 bytes back, 32 keep-alive connections"),
    "close": Scenario("the same with a connection for each request", close=True),
    "large": Scenario("GET, 100 kB back, keep-alive", path="/large", answer=proxies.LARGE_BYTES),
    "post": Scenario("POST of 1 kB, 128 bytes back, keep-alive", path="/post", body=1024),
    "log": Scenario("keep-alive with a log-format of 20 fields, sent to a syslog socket",
                    port=proxies.OWN_PORT, sections=proxies.LOG_CFG % "${LOG}"),
    "log-ring": Scenario("the same lines kept in a ring: what it costs to make them",
                         port=proxies.OWN_PORT, sections=proxies.LOG_CFG % "ring@lines" + proxies.RING_CFG),
    "rules": Scenario("keep-alive with 25 ACLs and 25 rules", port=proxies.OWN_PORT, sections=proxies.RULES_CFG),
    "map": Scenario("keep-alive with a look-up in a map of 100,000 hosts", port=proxies.OWN_PORT, sections=proxies.MAP_CFG),
    "track": Scenario("keep-alive with a rate limit, each request by one of 100,000 keys of a stick table",
                      port=proxies.OWN_PORT, sections=proxies.TRACK_CFG % f"rand({proxies.TRACK_KEYS})"),
    "track-one": Scenario("keep-alive with a rate limit by the client's address",
                          port=proxies.OWN_PORT, sections=proxies.TRACK_CFG % "src"),
    "tcp": Scenario("tcp mode: the requests of keep-alive through 32 tunnels", port=proxies.TCP_PORT),
}

WRK_SCRIPT = """\
%(request)s
function done(summary, latency)
    local e = summary.errors
    io.write(string.format("RESULT %%d %%d %%d %%d\\n", summary.requests, summary.duration,
        e.connect + e.read + e.write + e.timeout, e.status))
end
"""


def run(here, chosen, options):
    """Samples by scenario: a list of {proxy, round, ...}. Prints a line for each measurement."""
    proxies.start_origin(here)
    wanted = options.only or [*SCENARIOS, MEMORY]
    results = {}
    for name in wanted:
        samples = results.setdefault(name, [])
        rounds = min(options.rounds, MEMORY_ROUNDS_MAX) if name == MEMORY else options.rounds
        for turn in range(rounds):
            for proxy in rotated(chosen, turn):
                if name == MEMORY:
                    if isinstance(proxy, proxies.Floor):
                        continue
                    sample = idle_memory(here, proxy, options.connections)
                    said = f"{sample['bytes'] / 1024:8.2f} kB a connection"
                elif not takes_part(proxy, SCENARIOS[name]):
                    continue
                else:
                    sample = cpu_time(here, proxy, SCENARIOS[name], options.seconds)
                    said = (
                        f"{sample['user'] + sample['system']:8.2f} us a request "
                        f"({sample['user']:.2f} user, {sample['system']:.2f} system), {sample['rate']:.0f}/s"
                    )
                    if sample["errors"]:
                        said += f", {sample['errors']} FAILED"
                samples.append({"proxy": proxy.name, "round": turn, **sample})
                print(f"{name:12} round {turn + 1}/{rounds}  {proxy.name:8} {said}", flush=True)
    return results


def takes_part(proxy, scenario):
    """Whether the proxy can do it at all."""
    if isinstance(proxy, proxies.Floor):
        return scenario.path == "/small" and not scenario.close
    if scenario.sections:
        return isinstance(proxy, proxies.Haproxy)
    return scenario.port != proxies.TCP_PORT or proxy.tcp


def rotated(chosen, turn):
    """Each proxy is as often first, second and last as the others."""
    start = turn % len(chosen)
    return chosen[start:] + chosen[:start]


def cpu_time(here, proxy, scenario, seconds):
    """Microseconds of CPU time a request, in user and in system mode."""
    process = proxy.start(here, scenario.sections) if scenario.sections else proxy.start(here)
    try:
        verify(scenario)
        load(here, scenario, WARM_SECONDS)
        before = world.cpu_of(process.pid)
        requests, elapsed, errors = load(here, scenario, seconds)
        after = world.cpu_of(process.pid)
    finally:
        here.stop(process)
    if requests == 0:
        raise world.Trouble(f"{proxy.name} answered no request:\n{here.said(process)}")
    return {
        "user": (after[0] - before[0]) * 1e6 / requests,
        "system": (after[1] - before[1]) * 1e6 / requests,
        "rate": requests / elapsed,
        "requests": requests,
        "errors": errors,
    }


def verify(scenario):
    """One request by hand: a fast wrong answer is no answer."""
    with socket.create_connection(("127.0.0.1", scenario.port), timeout=5) as end:
        body = b"y" * scenario.body
        method = "POST" if body else "GET"
        head = f"{method} {scenario.path} HTTP/1.1\r\nHost: bench\r\nContent-Length: {len(body)}\r\n\r\n"
        end.sendall(head.encode() + body)
        status, length = read_answer(end)
    if (status, length) != (200, scenario.answer):
        raise world.Trouble(f"{scenario.path} answers {status} with {length} bytes")


def load(here, scenario, seconds):
    """Runs wrk; returns completed requests, seconds and failed requests."""
    request = []
    if scenario.close:
        request.append('wrk.headers["Connection"] = "close"')
    if scenario.body:
        request += ['wrk.method = "POST"', f'wrk.body = string.rep("y", {scenario.body})']
    script = here.folder / "load.lua"
    script.write_text(WRK_SCRIPT % {"request": "\n".join(request)})
    # wrk takes whole seconds only: it is told a longer time, and interrupted, after which it reports as usual.
    words = ["wrk", "-t", "1", "-c", str(scenario.connections), "-d", f"{int(seconds) + 10}s", "-s", str(script)]
    if float(seconds).is_integer():
        words[words.index("-d") + 1] = f"{int(seconds)}s"
    process = subprocess.Popen(
        [*words, f"http://127.0.0.1:{scenario.port}{scenario.path}"],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        preexec_fn=lambda: world.settle(here.load_cpu),
    )
    try:
        if not float(seconds).is_integer():
            time.sleep(seconds)
            process.send_signal(2)
        said, _ = process.communicate(timeout=seconds + WRK_GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        raise world.Trouble("wrk does not end") from None
    finally:
        process.kill()
        process.wait()
    return parse_wrk(said)


def parse_wrk(said):
    """The line that the script above makes wrk print: requests, microseconds, failed, answers from 400 on."""
    found = re.search(r"^RESULT (\d+) (\d+) (\d+) (\d+)$", said, re.M)
    if not found:
        raise world.Trouble(f"wrk gave no result:\n{said[-1000:]}")
    requests, microseconds, failed, status = map(int, found.groups())
    return requests, microseconds / 1e6, failed + status


def idle_memory(here, proxy, count):
    """Bytes that the proxy grew by for each of `count` idle connections that made one request each."""
    process = proxy.start(here)
    held = []
    try:
        # What the first requests allocate once is not the connections'.
        with socket.create_connection(("127.0.0.1", proxies.HTTP_PORT), timeout=5) as end:
            for _ in range(WARM_REQUESTS):
                ask(end)
        before = world.resident_of(process.pid)
        for _ in range(count):
            end = socket.create_connection(("127.0.0.1", proxies.HTTP_PORT), timeout=5)
            held.append(end)
            ask(end)
        after = world.resident_of(process.pid)
        open_still = sum(1 for end in held if is_open(end))
        if open_still < count:
            raise world.Trouble(f"{proxy.name} closed {count - open_still} of {count} idle connections")
    except OSError as error:
        raise world.Trouble(f"{proxy.name}, after {len(held)} connections: {error}") from None
    finally:
        for end in held:
            end.close()
        here.stop(process)
    return {"bytes": (after - before) / count, "connections": count}


def ask(end):
    end.sendall(b"GET /small HTTP/1.1\r\nHost: bench\r\n\r\n")
    status, length = read_answer(end)
    if (status, length) != (200, len(proxies.SMALL)):
        raise world.Trouble(f"a connection got {status} with {length} bytes")


def is_open(end):
    end.setblocking(False)
    try:
        return end.recv(1, socket.MSG_PEEK) != b""
    except BlockingIOError:
        return True
    except OSError:
        return False


ANSWER_BYTES_MAX = 2 << 20


def read_answer(end):
    """Status and body length of an answer with Content-Length, read to its last byte."""
    data = b""
    while b"\r\n\r\n" not in data:
        data += receive(end, data)
    head, body = data.split(b"\r\n\r\n", 1)
    status = int(head.split(None, 2)[1])
    found = re.search(rb"^content-length:\s*(\d+)", head, re.I | re.M)
    if not found:
        raise world.Trouble(f"an answer without Content-Length: {head!r}")
    length = int(found.group(1))
    while len(body) < length:
        body += receive(end, body)
    return status, len(body)


def receive(end, data):
    if len(data) > ANSWER_BYTES_MAX:
        raise world.Trouble("an answer without end")
    more = end.recv(65536)
    if not more:
        raise world.Trouble(f"an answer ends after {len(data)} bytes: {data[:200]!r}")
    return more
