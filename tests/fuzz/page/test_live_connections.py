"""Whoever opens connections to the page of a run and asks for nothing keeps nobody else from it."""

import socket
import time
from contextlib import ExitStack
from http.client import HTTPConnection
from importlib.util import find_spec
from urllib.parse import urlsplit

import pytest
from blockproof.fuzz.page import live

pytestmark = pytest.mark.skipif(
    any(find_spec(name) is None for name in live.NEEDED), reason="no server: pip install 'blockproof[serve]'"
)
HALF = b"GET /%s/ HTTP/1.1\r\nHost: 127"


def status(address):
    """What the page answers."""
    where = urlsplit(address)
    connection = HTTPConnection(where.hostname, where.port, timeout=20)
    try:
        connection.request("GET", where.path)
        return connection.getresponse().status
    finally:
        connection.close()


@pytest.mark.parametrize("begin", [b"", HALF, b"G"])
def test_half_open_connections_keep_nobody_from_the_page(begin):
    with live.LivePage(0) as page, ExitStack() as open_ones:
        where = urlsplit(page.address)
        opened = []
        for _ in range(200):
            one = open_ones.enter_context(socket.create_connection((where.hostname, where.port), timeout=20))
            one.sendall(begin)
            opened.append(one)
        assert status(page.address) == 200
        opened[-1].settimeout(30)
        begin_wait = time.monotonic()
        assert opened[-1].recv(1 << 16) is not None  # it is closed, or told that it is no request
        assert time.monotonic() - begin_wait < 25
        assert status(page.address) == 200


def test_a_connection_that_is_used_stays():
    with live.LivePage(0) as page:
        where = urlsplit(page.address)
        connection = HTTPConnection(where.hostname, where.port, timeout=20)
        for _ in range(3):
            connection.request("GET", where.path)
            assert connection.getresponse().read()
            time.sleep(0.2)
        connection.close()
