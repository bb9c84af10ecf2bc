"""A TVM RPC server that stays: it starts the threads that timing wants, and comes back after a kernel has crashed it."""

import os

from ..tasks.device import usable_cores
from .remote import use_binaries


def serve(rpc, key, host, port):
    """Serve this machine's devices to a tracker's clients until interrupted.

    TVM's server runs every session in a child process, and takes no more of them once a child has crashed, while its own
    process stays. Whoever reaches it can run any code: it is for trusted networks.

    Parameters
    ----------
    rpc, key
        The tracker's HOST:PORT, and the key to be known by there.
    host, port
        The address to listen on; the first free port from ``port`` on.
    """
    os.environ.setdefault("TVM_NUM_THREADS", str(usable_cores()))  # before TVM is loaded; alone it may start a single thread
    from tvm.rpc.server import PopenRPCServerState

    use_binaries()
    tracker_host, _, tracker_port = rpc.rpartition(":")
    home = os.getcwd()
    try:
        while True:
            os.chdir(home)  # a crashed session has left us in its folder, which is gone
            server = PopenRPCServerState(host, port, port + 100, tracker_addr=(tracker_host, int(tracker_port)), key=key)
            print(f"serving as {key!r} of the tracker {rpc}, on {host}:{server.port}", flush=True)
            server.thread.join()
            server.sock.close()
            print("TVM's server has ended, most likely crashed by a kernel; starting it again", flush=True)
    except KeyboardInterrupt:
        os._exit(130)  # TVM's thread would go on
