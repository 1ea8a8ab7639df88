"""Requests over HTTP/2 by httpx, many at a time, and by h2, whose windows and trailers are in our hands.

usage: http2.py CA PORT
"""

import asyncio
import socket
import ssl
import sys

import h2.config
import h2.connection
import h2.events
import httpx

CA, PORT = sys.argv[1], int(sys.argv[2])


async def by_httpx():
    limits = httpx.Limits(max_connections=1)
    async with httpx.AsyncClient(http2=True, http1=False, verify=CA, limits=limits, timeout=30) as client:
        url = f"https://127.0.0.1:{PORT}"
        responses = await asyncio.gather(*(client.get(f"{url}/bytes/{20000 + number}") for number in range(30)))
        right = [r.http_version == "HTTP/2" and len(r.content) == 20000 + n for n, r in enumerate(responses)]
        print(f"httpx: {right.count(True)} right of {len(right)}")
        sent = bytes(range(256)) * 1000
        echoed = await client.post(f"{url}/echo", content=sent)
        print("httpx: echo", echoed.status_code, echoed.content == sent)

        async def pieces():
            for number in range(10):
                yield b"%05d" % number

        echoed = await client.post(f"{url}/echo", content=pieces())
        print("httpx: pieces", echoed.status_code, echoed.text == "".join(f"{n:05}" for n in range(10)))


def by_h2():
    context = ssl.create_default_context(cafile=CA)
    context.set_alpn_protocols(["h2"])
    with socket.create_connection(("127.0.0.1", PORT), timeout=30) as plain:
        with context.wrap_socket(plain, server_hostname="a.example") as tls:
            connection = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding="utf-8"))
            connection.initiate_connection()
            head = [(":method", "POST"), (":scheme", "https"), (":authority", "a.example"), (":path", "/echo")]
            connection.send_headers(1, head)
            connection.send_data(1, b"hello")
            connection.send_headers(1, [("x-checksum", "1")], end_stream=True)
            head = [(":method", "GET"), (":scheme", "https"), (":authority", "a.example"), (":path", "/bytes/100000")]
            connection.send_headers(3, head, end_stream=True)
            tls.sendall(connection.data_to_send())
            status, bodies, open_streams = {}, {1: b"", 3: b""}, {1, 3}
            while open_streams:
                received = tls.recv(65536)
                if not received:
                    raise SystemExit("the connection ended early")
                for event in connection.receive_data(received):
                    if isinstance(event, h2.events.ResponseReceived):
                        status[event.stream_id] = dict(event.headers)[":status"]
                    elif isinstance(event, h2.events.DataReceived):
                        bodies[event.stream_id] += event.data
                        # A few bytes at a time: the response has to wait for each of them.
                        connection.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                    elif isinstance(event, (h2.events.StreamEnded, h2.events.StreamReset)):
                        open_streams.discard(event.stream_id)
                tls.sendall(connection.data_to_send())
            print("h2:", sorted(status.items()), bodies[1], len(bodies[3]))
            connection.close_connection()
            tls.sendall(connection.data_to_send())


asyncio.run(by_httpx())
by_h2()
