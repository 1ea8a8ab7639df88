"""A gRPC server with all four kinds of calls. The scripts that use it stand behind it."""

import time
from concurrent import futures

import grpc


class Calls(grpc.GenericRpcHandler):
    def service(self, details):
        kinds = {
            "/t/Echo": (grpc.unary_unary_rpc_method_handler, lambda request, context: request),
            "/t/Fail": (grpc.unary_unary_rpc_method_handler, fail),
            "/t/Slow": (grpc.unary_unary_rpc_method_handler, slow),
            "/t/Down": (grpc.unary_stream_rpc_method_handler, down),
            "/t/Up": (grpc.stream_unary_rpc_method_handler, lambda pieces, context: b"%d" % sum(map(len, pieces))),
            "/t/Chat": (grpc.stream_stream_rpc_method_handler, chat),
        }
        make, function = kinds[details.method]
        return make(function)


def fail(request, context):
    context.abort(grpc.StatusCode.NOT_FOUND, "there is none")


def slow(request, context):
    while context.is_active():
        time.sleep(0.01)
    return b""


def down(request, context):
    for _ in range(int(request)):
        yield b"x" * 1000


def chat(pieces, context):
    context.set_trailing_metadata((("x-end", "1"),))
    yield from pieces


def serve(port, pem=None):
    server = grpc.server(futures.ThreadPoolExecutor(64))
    server.add_generic_rpc_handlers((Calls(),))
    if pem:
        bound = server.add_secure_port(f"127.0.0.1:{port}", grpc.ssl_server_credentials([(pem, pem)]))
    else:
        bound = server.add_insecure_port(f"127.0.0.1:{port}")
    assert bound == int(port)
    server.start()
    return server
