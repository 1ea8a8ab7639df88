"""The health protocol of gRPC: servers, and what a proxy's checks find.

usage: grpc_health.py PORT WITHOUT_PORT TLS_PORT CERTIFICATE STATS_SOCKET
"""

import csv
import os
import socket
import sys
import time
from concurrent import futures

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

PORT, WITHOUT, TLS, CERTIFICATE, STATS = sys.argv[1:]
STATUS = health_pb2.HealthCheckResponse


def statistics():
    with socket.socket(socket.AF_UNIX) as stream:
        stream.connect(STATS)
        stream.sendall(b"show stat\n")
        text = b"".join(iter(lambda: stream.recv(65536), b"")).decode()
    rows = csv.DictReader(text.lstrip("# ").splitlines())
    return {row["svname"]: row for row in rows if row["pxname"].startswith("app") and row["svname"] not in ("BACKEND", "FRONTEND")}


def line(row):
    status = row["status"].split()[0]
    return f"{row['svname']}: {status} {row['check_status'].lstrip('* ')} {row['check_code']} {row['last_chk']}"


def until(name, status):
    due = time.monotonic() + 20
    while statistics()[name]["status"].split()[0] != status and time.monotonic() < due:
        time.sleep(0.05)
    print("then", line(statistics()[name]))


def serve(port, servicer, credentials=None):
    server = grpc.server(futures.ThreadPoolExecutor(8))
    if servicer:
        health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    if credentials:
        server.add_secure_port(f"127.0.0.1:{port}", credentials)
    else:
        server.add_insecure_port(f"127.0.0.1:{port}")
    server.start()
    return server


servicer = health.HealthServicer()
servicer.set("a.Good", STATUS.SERVING)
servicer.set("a.Bad", STATUS.NOT_SERVING)
servicer.set("a.Odd", STATUS.UNKNOWN)
servicer.set("a.Gone", STATUS.SERVICE_UNKNOWN)
pem = open(CERTIFICATE, "rb").read()
servers = [
    serve(PORT, servicer),
    serve(WITHOUT, None),
    serve(TLS, servicer, grpc.ssl_server_credentials([(pem, pem)])),
]
for name in ("whole", "good", "tls"):
    until(name, "UP")
due = time.monotonic() + 20
while not all("L7" in row["check_status"] for row in statistics().values()) and time.monotonic() < due:
    time.sleep(0.05)
for row in statistics().values():
    print(line(row))
servicer.set("a.Good", STATUS.NOT_SERVING)
until("good", "DOWN")
servicer.set("a.Good", STATUS.SERVING)
until("good", "UP")
servers[0].stop(None).wait()
until("good", "DOWN")
sys.stdout.flush()
os._exit(0)
