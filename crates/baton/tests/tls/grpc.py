"""gRPC through a proxy, server (grpc_server.py) and client: all four kinds of calls, an error, a deadline, and many calls at once.

usage: grpc.py SERVER_PORT PROXY_PORT SECONDS
"""

import os
import queue
import sys
import time

import grpc

SERVER, PROXY, SECONDS = sys.argv[1], sys.argv[2], float(sys.argv[3])


def error(call):
    try:
        return call()
    except grpc.RpcError as failed:
        return f"{failed.code().name} {failed.details()}"


def ask(channel):
    print("echo:", channel.unary_unary("/t/Echo")(b"hello"))
    print("fail:", error(lambda: channel.unary_unary("/t/Fail")(b"")))
    print("deadline:", error(lambda: channel.unary_unary("/t/Slow")(b"", timeout=0.2)).split()[0])
    print("down:", sum(map(len, channel.unary_stream("/t/Down")(b"3000"))))
    print("up:", channel.stream_unary("/t/Up")(iter([b"x" * 100_000] * 30)))
    sent = queue.Queue()
    call = channel.stream_stream("/t/Chat")(iter(sent.get, None))
    # Each message comes back before the next one is sent, for as long as this is to last.
    due, count = time.monotonic() + SECONDS, 0
    while count < 50 or time.monotonic() < due:
        sent.put(b"%d" % count)
        if next(call) != b"%d" % count:
            break
        count += 1
        time.sleep(0.005)
    sent.put(None)
    print("chat:", count >= 50, list(call), dict(call.trailing_metadata()))
    calls = [channel.unary_unary("/t/Echo").future(b"%d" % number) for number in range(300)]
    print("calls:", sum(call.result() == b"%d" % number for number, call in enumerate(calls)))
    # A stream that nobody reads is held, and given up.
    call = channel.unary_stream("/t/Down")(b"20000")
    next(call)
    call.cancel()
    print("after:", channel.unary_unary("/t/Echo")(b"it"))


server = serve(SERVER)
ask(grpc.insecure_channel(f"127.0.0.1:{PROXY}"))
sys.stdout.flush()
os._exit(0)
