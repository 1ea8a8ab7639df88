"""The programs that are compared, and the origin behind them, each with the configuration it gets."""

import glob
import os
import shutil
import socket
import subprocess
from pathlib import Path

import world

HTTP_PORT = 8000
TCP_PORT = 8001
ORIGIN_PORT = 9000
# The same origin, by HTTP/2.
HTTP2_ORIGIN_PORT = 9002
# Of the frontend that a scenario brings along.
OWN_PORT = 8002
SYSLOG_PORT = 9514

# A proxy needs two descriptors a connection, and many machines allow 20,000 a process.
CONNECTIONS_MAX = 9000

SMALL = "x" * 128
LARGE_BYTES = 100_000

# One file for haproxy and for Baton, word for word.
HAPROXY_CFG = f"""\
global
    nbthread 1
    maxconn {CONNECTIONS_MAX}

defaults
    mode http
    timeout connect 5s
    timeout client 60s
    timeout server 60s
    timeout http-keep-alive 60s
    http-reuse always

frontend web
    bind 127.0.0.1:{HTTP_PORT}
    default_backend origins

backend origins
    server o1 127.0.0.1:{ORIGIN_PORT}

listen tunnel
    mode tcp
    bind 127.0.0.1:{TCP_PORT}
    server o1 127.0.0.1:{ORIGIN_PORT}
"""

# Twenty fields, as sites have them; the log's target is filled in.
LOG_CFG = f"""
frontend own
    bind 127.0.0.1:{OWN_PORT}
    log %s format raw local0
    capture request header Host len 32
    capture request header User-Agent len 64
    log-format "%%ci:%%cp [%%tr] %%ft %%b/%%s %%TR/%%Tw/%%Tc/%%Tr/%%Ta %%ST %%B %%U %%tsc %%hr %%[src] %%[method] %%HV %%{{+Q}}HU"
    default_backend origins
"""

RING_CFG = """
ring lines
    format raw
    maxlen 1200
    size 65536
"""

# What a site of some size asks of each request: 25 ACLs, and 25 rules of which few apply.
RULES_CFG = (
    f"frontend own\n    bind 127.0.0.1:{OWN_PORT}\n"
    + "".join(f"    acl path{n} path_beg /api/v{n}/ /old/{n}/\n" for n in range(10))
    + "".join(f"    acl host{n} hdr(host) -i www{n}.example.com example{n}.com\n" for n in range(10))
    + "    acl internal src 10.0.0.0/8 192.168.0.0/16 172.16.0.0/12\n    acl writes method POST PUT DELETE\n"
    + "    acl bot req.hdr(user-agent) -m sub -i bot crawler spider\n    acl has_id req.hdr(x-request-id) -m found\n"
    + "    acl asset path_end .js .css .png .jpg\n"
    + "".join(f"    http-request set-header X-Api v{n} if path{n} !internal\n" for n in range(10))
    + "".join(f"    http-request deny if host{n} writes bot\n" for n in range(5))
    + "    http-request set-header X-Forwarded-Proto http\n    http-request set-header X-Client %[src]\n"
    + "    http-request set-var(txn.host) req.hdr(host),lower\n    http-request set-var(txn.path) path,lower\n"
    + "    http-request del-header X-Internal unless internal\n    http-request set-header X-Bot 1 if bot\n"
    + "    http-request set-header X-Id %[rand] unless has_id\n    http-request set-header X-Asset 1 if asset\n"
    + "    http-response set-header Strict-Transport-Security max-age=31536000\n    http-response del-header Server\n"
    + "    default_backend origins\n"
)

MAP_ENTRIES = 100_000
MAP_CFG = f"""
frontend own
    bind 127.0.0.1:{OWN_PORT}
    http-request set-header X-Tenant %[req.hdr(host),lower,map_str(${{FOLDER}}/tenants.map,none)]
    default_backend origins
"""

# A limit that is never reached: requests are tracked, and their rate is looked at.
TRACK_KEYS = 100_000
TRACK_CFG = f"""
frontend own
    bind 127.0.0.1:{OWN_PORT}
    stick-table type ip size 200k expire 10m store http_req_rate(10s)
    http-request track-sc0 %s
    http-request deny deny_status 429 if {{ sc_http_req_rate(0) gt 100000000 }}
    default_backend origins
"""

# nginx asks for HTTP/1.1 and a cleared Connection field before it keeps connections to origins.
NGINX_CFG = f"""\
%(modules)s
daemon off;
worker_processes 1;
%(user)s
pid nginx-%(name)s.pid;
error_log stderr warn;
events {{ worker_connections {2 * CONNECTIONS_MAX}; }}
http {{
    access_log off;
    tcp_nodelay on;
    keepalive_timeout 60s;
    keepalive_requests 100000000;
    client_body_temp_path temp-body;
    proxy_temp_path temp-proxy;
    fastcgi_temp_path temp-fastcgi;
    uwsgi_temp_path temp-uwsgi;
    scgi_temp_path temp-scgi;
    %(http)s
}}
%(stream)s
"""

NGINX_PROXY = f"""
    upstream origins {{
        server 127.0.0.1:{ORIGIN_PORT};
        keepalive 256;
        keepalive_requests 100000000;
    }}
    server {{
        listen 127.0.0.1:{HTTP_PORT} backlog=4096;
        location / {{
            proxy_pass http://origins;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
        }}
    }}
"""

NGINX_STREAM = f"""
stream {{
    server {{
        listen 127.0.0.1:{TCP_PORT};
        proxy_pass 127.0.0.1:{ORIGIN_PORT};
    }}
}}
"""

NGINX_ORIGIN = f"""
    sendfile on;
    tcp_nopush on;
    open_file_cache max=10;
    default_type application/octet-stream;
    server {{
        listen 127.0.0.1:{ORIGIN_PORT} backlog=4096;
        listen 127.0.0.1:{HTTP2_ORIGIN_PORT} http2 backlog=4096;
        location = /small {{ return 200 "{SMALL}"; }}
        location = /post {{ return 200 "{SMALL}"; }}
        location = /large {{ root %(folder)s; }}
    }}
"""

STREAM_MODULE = "/usr/lib/nginx/modules/ngx_stream_module.so"


class Haproxy:
    """haproxy, or a program that takes its configuration and options."""

    tcp = True

    def __init__(self, name, program):
        self.name = name
        self.program = shutil.which(program) or program

    def version(self):
        return world.first_line([self.program, "-v"])

    def start(self, here, sections=""):
        path = here.folder / "haproxy.cfg"
        own = sections.replace("${LOG}", f"127.0.0.1:{SYSLOG_PORT}").replace("${FOLDER}", str(here.folder))
        path.write_text(HAPROXY_CFG + own)
        if "tenants.map" in own and not (here.folder / "tenants.map").exists():
            lines = (f"host{n}.example.com tenant{n}\n" for n in range(MAP_ENTRIES - 1))
            (here.folder / "tenants.map").write_text("".join(lines) + "bench tenant\n")
        if sections and not hasattr(here, "syslog"):
            here.syslog = syslog()
        process = here.start([self.program, "-db", "-f", str(path)], here.proxy_cpu, self.name)
        here.wait_for(process, HTTP_PORT)
        return process


class Floor:
    """bench/floor.c: the system calls of the scenarios with small messages, and nothing else."""

    name = "floor"
    program = "cc"
    tcp = True
    source = Path(__file__).resolve().parent / "floor.c"

    def version(self):
        return "the system calls alone (bench/floor.c)"

    def compiled(self, folder):
        path = folder / "floor"
        if not path.exists():
            subprocess.run(["cc", "-O2", "-o", str(path), str(self.source)], check=True)
        return str(path)

    def start(self, here, sections=""):
        words = [self.compiled(here.folder), "-o", str(ORIGIN_PORT)]
        words += [word for port in (HTTP_PORT, TCP_PORT, OWN_PORT) for word in ("-p", str(port))]
        if "${LOG}" in sections or f":{SYSLOG_PORT} " in sections:
            here.syslog = getattr(here, "syslog", None) or syslog()
            words += ["-l", str(SYSLOG_PORT)]
        process = here.start(words, here.proxy_cpu, self.name)
        here.wait_for(process, HTTP_PORT)
        return process

    def asking(self, here, connections):
        """What the origin's side of a request costs alone, over so many kept connections at a time: a line of text."""
        words = [self.compiled(here.folder), "-o", str(ORIGIN_PORT), "-q", str(connections)]
        return subprocess.run(words, check=True, capture_output=True, text=True, preexec_fn=lambda: world.settle(here.proxy_cpu)).stdout.strip()


def syslog():
    """A socket that lines are sent to. Nobody reads it: when its queue is full the kernel drops them, which costs little."""
    end = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    end.bind(("127.0.0.1", SYSLOG_PORT))
    return end


class Nginx:
    """nginx with one worker; without its stream module (a package of its own) it has no tcp mode."""

    def __init__(self, name, program):
        self.name = name
        self.program = program
        self.tcp = bool(glob.glob(STREAM_MODULE))

    def version(self):
        return world.first_line([self.program, "-v"])

    def start(self, here):
        process = start_nginx(
            here, self.name, here.proxy_cpu, NGINX_PROXY,
            modules=f"load_module {STREAM_MODULE};" if self.tcp else "",
            stream=NGINX_STREAM if self.tcp else "",
        )
        here.wait_for(process, HTTP_PORT)
        return process


def start_origin(here):
    (here.folder / "large").write_bytes(b"x" * LARGE_BYTES)
    os.chmod(here.folder, 0o755)
    process = start_nginx(here, "origin", here.load_cpu, NGINX_ORIGIN % {"folder": here.folder})
    here.wait_for(process, ORIGIN_PORT)
    return process


def start_nginx(here, name, cpu, http, modules="", stream=""):
    path = here.folder / f"{name}.conf"
    # The worker would change its user; inside a user namespace there is only one.
    text = NGINX_CFG % {"name": name, "http": http, "modules": modules, "stream": stream, "user": "user root root;"}
    path.write_text(text)
    return here.start(["nginx", "-p", str(here.folder), "-c", str(path)], cpu, name)
