"""Python's ssl module against 127.0.0.1: arguments are the authority's file and the port."""
import socket
import ssl
import sys

authority, port = sys.argv[1], int(sys.argv[2])


def ask(context, session):
    with socket.create_connection(("127.0.0.1", port), timeout=20) as plain:
        with context.wrap_socket(plain, server_hostname="a.example", session=session) as end:
            end.sendall(b"GET /bytes/100000 HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n")
            answer = b""
            try:
                while piece := end.recv(65536):
                    answer += piece
                # An end without close_notify would have been an error.
                ending = "close_notify"
            except ssl.SSLEOFError:
                ending = "cut off"
            head, body = answer.split(b"\r\n\r\n", 1)
            how = "resumed" if end.session_reused else "full"
            print(end.version(), how, head.split()[1].decode(), len(body), end.cipher()[0], ending)
            print(end.getpeercert()["subject"] if not end.session_reused else "")
            return end.session


for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
    context = ssl.create_default_context(cafile=authority)
    context.minimum_version = context.maximum_version = version
    context.suppress_ragged_eofs = False
    ask(context, ask(context, None))
