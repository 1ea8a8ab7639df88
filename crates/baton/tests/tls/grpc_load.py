"""Calls of all kinds, in clear text and over TLS, until the standard input ends; then what became of them, as JSON.

usage: grpc_load.py CLEAR_SERVER_PORT TLS_SERVER_PORT CLEAR_PROXY_PORT TLS_PROXY_PORT AUTHORITY CERTIFICATE
"""

import json
import os
import queue
import random
import sys
import threading
import time
from collections import Counter

import grpc

CLEAR_SERVER, TLS_SERVER, CLEAR, TLS, AUTHORITY, CERTIFICATE = sys.argv[1:]
# A call that hangs is one that failed.
SECONDS_MAX = 20
# Threads of each kind on each connection.
THREADS = 2

is_over = threading.Event()
counts, errors = Counter(), []


def unary(channel, chance):
    sent = chance.randbytes(chance.randrange(2000))
    return channel.unary_unary("/t/Echo")(sent, timeout=SECONDS_MAX) == sent


def server_streaming(channel, chance):
    count = chance.randrange(1, 200)
    return sum(map(len, channel.unary_stream("/t/Down")(b"%d" % count, timeout=SECONDS_MAX))) == count * 1000


def client_streaming(channel, chance):
    pieces = [b"x" * chance.randrange(10_000) for _ in range(20)]
    return channel.stream_unary("/t/Up")(iter(pieces), timeout=SECONDS_MAX) == b"%d" % sum(map(len, pieces))


def bidirectional(channel, chance):
    """Each message comes back before the next one is sent, for up to a second and a half: over many changes."""
    sent = queue.Queue()
    call = channel.stream_stream("/t/Chat")(iter(sent.get, None), timeout=SECONDS_MAX)
    due, number, is_right = time.monotonic() + chance.random() * 1.5, 0, True
    while is_right and time.monotonic() < due:
        sent.put(b"%d" % number)
        is_right = next(call) == b"%d" % number
        number += 1
        time.sleep(0.01)
    sent.put(None)
    return is_right and not list(call) and dict(call.trailing_metadata()) == {"x-end": "1"}


def keep_calling(kind, channel, seed):
    chance = random.Random(seed)
    while not is_over.is_set():
        try:
            counts[kind.__name__ if kind(channel, chance) else "wrong"] += 1
        except grpc.RpcError as error:
            counts["failed"] += 1
            errors.append(f"{kind.__name__}: {error.code().name} {error.details()}")
        time.sleep(0.005)


def channels():
    """Each is a connection of its own."""
    for number in range(2):
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.primary_user_agent", f"channel{number}")]
        yield grpc.insecure_channel(f"127.0.0.1:{CLEAR}", options)
        authority = grpc.ssl_channel_credentials(open(AUTHORITY, "rb").read())
        yield grpc.secure_channel(f"127.0.0.1:{TLS}", authority, options)


pem = open(CERTIFICATE, "rb").read()
servers = [serve(CLEAR_SERVER), serve(TLS_SERVER, pem)]
threads = [
    threading.Thread(target=keep_calling, args=(kind, channel, f"{number} {thread} {kind.__name__}"))
    for number, channel in enumerate(channels())
    for kind in (unary, server_streaming, client_streaming, bidirectional)
    for thread in range(THREADS)
]
for thread in threads:
    thread.start()
sys.stdin.read()
is_over.set()
for thread in threads:
    thread.join()
print(json.dumps({**counts, "errors": errors[:5]}))
sys.stdout.flush()
os._exit(0)
