"""A real SSH server for one key, on a free port of loopback: the other machine of tests.

Usage: ssh_server.py FOLDER. Writes the client's private key to FOLDER/key and the port to standard output. Commands and SFTP
see the files of this machine, with FOLDER for a home and no package index.
"""

import asyncio
import os
import sys
from pathlib import Path

import asyncssh


async def run(process):
    pipe = asyncio.subprocess.PIPE
    child = await asyncio.create_subprocess_shell(process.command, stdin=asyncio.subprocess.DEVNULL, stdout=pipe, stderr=pipe)
    output, errors = await child.communicate()
    process.stdout.write(output)
    process.stderr.write(errors)
    process.exit(child.returncode)


async def main(folder):
    os.environ.update(HOME=str(folder), PIP_NO_INDEX="1")
    key = asyncssh.generate_private_key("ssh-ed25519")
    key.write_private_key(folder / "key")
    server = await asyncssh.listen(
        "127.0.0.1",
        0,
        server_host_keys=[asyncssh.generate_private_key("ssh-ed25519")],
        authorized_client_keys=asyncssh.import_authorized_keys(key.export_public_key().decode()),
        process_factory=run,
        encoding=None,
        sftp_factory=True,
    )
    print(server.get_port(), flush=True)
    await server.wait_closed()


asyncio.run(main(Path(sys.argv[1]).resolve()))
