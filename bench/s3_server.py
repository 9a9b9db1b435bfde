"""s3_server: moto's S3 server on a free port of loopback, with one bucket; prints its URL, ends with its parent."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

BUCKET = "bucket"
SECRETS = {"AWS_ACCESS_KEY_ID": "nobody", "AWS_SECRET_ACCESS_KEY": "nothing", "AWS_DEFAULT_REGION": "us-east-1"}


@contextmanager
def s3_server(*, nice: int = 0) -> Iterator[dict[str, str]]:
    """A server in a process of its own; gives what the environment of its users must say."""
    process = subprocess.Popen([sys.executable, str(Path(__file__)), str(nice)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        url = process.stdout.readline().strip()
        if not url:
            raise RuntimeError("the S3 server did not start; it needs moto: pip install 'moto[server]' s3fs")
        yield {**SECRETS, "AWS_ENDPOINT_URL": url}
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def main() -> None:
    import boto3
    from moto.server import ThreadedMotoServer

    os.environ.update(SECRETS)
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    parent, server = os.getppid(), ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    url = "http://{}:{}".format(*server.get_host_and_port())
    boto3.client("s3", endpoint_url=url).create_bucket(Bucket=BUCKET)
    print(url, flush=True)
    os.nice(int(sys.argv[1]))
    while os.getppid() == parent:
        time.sleep(0.2)


if __name__ == "__main__":
    main()
