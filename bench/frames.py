"""HTTP/2 by hand: frames as bytes, and a client that reads just enough of what comes back."""

import socket
import struct

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM, ACK, END_HEADERS = 1, 1, 4
INITIAL_WINDOW_SIZE = 4
CODES = (
    "NO_ERROR PROTOCOL_ERROR INTERNAL_ERROR FLOW_CONTROL_ERROR SETTINGS_TIMEOUT STREAM_CLOSED FRAME_SIZE_ERROR REFUSED_STREAM CANCEL "
    "COMPRESSION_ERROR CONNECT_ERROR ENHANCE_YOUR_CALM INADEQUATE_SECURITY HTTP_1_1_REQUIRED"
).split()


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def integer(value, bits, first=0):
    """An integer of HPACK (RFC 7541 5.1)."""
    most = (1 << bits) - 1
    if value < most:
        return bytes([first | value])
    out, value = [first | most], value - most
    while value >= 128:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def text(value):
    return integer(len(value), 7) + value


def literal(name, value, kept=False):
    """A field, into the dynamic table or not."""
    return (b"\x40" if kept else b"\x00") + text(name) + text(value)


def request(path=b"/small", method=b"GET", scheme=b"http", more=b""):
    """A field block: all that is usual is in the static table."""
    start = {b"GET": b"\x82", b"POST": b"\x83"}[method] + {b"http": b"\x86", b"https": b"\x87"}[scheme]
    return start + b"\x04" + text(path) + b"\x01" + text(b"bench") + more


def settings(*pairs):
    return frame(SETTINGS, 0, 0, b"".join(struct.pack(">HI", *pair) for pair in pairs))


def window_update(stream, increment):
    return frame(WINDOW_UPDATE, 0, stream, struct.pack(">I", increment))


def reset(stream, code=8):
    return frame(RST_STREAM, 0, stream, struct.pack(">I", code))


def greeting(*pairs):
    return PREFACE + settings(*pairs) + frame(SETTINGS, ACK, 0)


class Reader:
    """Takes frames apart as they come."""

    def __init__(self):
        self.rest = b""
        self.goaway = None
        self.resets = 0
        self.ended = 0
        self.status = {}

    def feed(self, received):
        data = self.rest + received
        at = 0
        while len(data) - at >= 9:
            length = int.from_bytes(data[at : at + 3], "big")
            if len(data) - at < 9 + length:
                break
            kind, flags, stream = data[at + 3], data[at + 4], int.from_bytes(data[at + 5 : at + 9], "big")
            payload = data[at + 9 : at + 9 + length]
            at += 9 + length
            if kind == GOAWAY:
                code = int.from_bytes(payload[4:8], "big")
                self.goaway = CODES[code] if code < len(CODES) else str(code)
            elif kind == RST_STREAM:
                self.resets += 1
            elif kind in (DATA, HEADERS) and flags & END_STREAM:
                self.ended += 1
        self.rest = data[at:]


def ask(end, block, streams=(1,)):
    """Sends a request on each of these streams of a new connection, and waits for the ends of all responses."""
    end.sendall(greeting() + b"".join(frame(HEADERS, END_STREAM | END_HEADERS, stream, block) for stream in streams))
    reader = Reader()
    while reader.ended < len(streams):
        received = end.recv(65536)
        if not received or reader.goaway or reader.resets:
            raise OSError(f"no response: {reader.goaway}")
        reader.feed(received)


def connect(port):
    end = socket.create_connection(("127.0.0.1", port), timeout=5)
    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return end
