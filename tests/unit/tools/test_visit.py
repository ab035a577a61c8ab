"""Pages of the web: what is read of them, what is not fetched, and which addresses are public."""

import gzip
import json
import socket
import time
import zlib
from collections.abc import Iterator

import pytest
from web_servers import WebServer, name_hosts, reply, serve

from drag_ray.errors import ConfigError, ToolError
from drag_ray.tools.calls import CallLimits, CallOutcome, ToolCaller
from drag_ray.tools.config import ToolOptions, VisitConfig
from drag_ray.tools.fetch import FetchLimits, fetch
from drag_ray.tools.visit import is_public, make_tool
from drag_ray.tools.workspace import Workspace

ARTICLE = "".join(f"<p>On day {day} it rained in the whole valley, and the river rose by {day} cm.</p>" for day in range(9))
PAGE = (
    "<html><head><title>Rain</title></head><body><nav><a href='/'>Home</a></nav>"
    f"<article><h1>Rain</h1>{ARTICLE}</article><footer>Cookies</footer></body></html>"
)
LIMITS = FetchLimits(timeout_s=10, max_bytes=1_000_000, max_redirects=3)


@pytest.fixture(scope="module")
def server() -> Iterator[WebServer]:
    with serve() as server:
        yield server


async def visit(workspace: Workspace, url: str, **options: object) -> CallOutcome:
    config = VisitConfig(**options)  # type: ignore[arg-type]
    caller = ToolCaller(make_tool(ToolOptions(visit=config)))
    return await caller.call(json.dumps({"url": url}), workspace, CallLimits(timeout_s=60, max_chars=10_000))


@pytest.mark.parametrize(
    ("body", "content_type", "shown", "hidden"),
    [
        (PAGE.encode(), "text/html; charset=utf-8", ["Rain", "On day 8 it rained"], ["Home", "Cookies", "<p>"]),
        (PAGE.replace("river", "Flüßchen").encode("latin-1"), "text/html; charset=ISO-8859-1", ["Flüßchen"], []),
        (b"<body>short", "text/html", ["short"], []),
        (b"<html></html>", "text/html", ["There is no text on this page."], []),
        ("grün".encode(), "text/plain", ["grün"], []),
        (b"\xff\xfe\x00 rest", "text/plain; charset=no-such", ["rest"], []),
        (b'{"a": 1}', "application/json", ['{"a": 1}'], []),
        (b"x", "text/plain; charset=zlib", ["x"], []),
    ],
)
async def test_the_main_text_of_a_page_is_read(
    server: WebServer, workspace: Workspace, body: bytes, content_type: str, shown: list[str], hidden: list[str]
) -> None:
    server.replies["/page"] = reply(body, content_type)
    outcome = await visit(workspace, f"http://127.0.0.1:{server.port}/page", allow_private=True, ports=[server.port])
    assert not outcome.error
    assert outcome.text.startswith(f"http://127.0.0.1:{server.port}/page\n\n")
    assert all(text in outcome.text for text in shown)
    assert not any(text in outcome.text for text in hidden)


async def test_a_pdf_is_read_by_pages(server: WebServer, workspace: Workspace) -> None:
    from io import BytesIO

    from reportlab.pdfgen.canvas import Canvas

    file = BytesIO()
    canvas = Canvas(file)
    for text in ("The first page", "The second page"):
        canvas.drawString(72, 700, text)
        canvas.showPage()
    canvas.save()
    server.replies["/pdf"] = reply(file.getvalue(), "application/pdf")
    server.replies["/broken"] = reply(b"%PDF-1.7 nothing", "application/pdf")
    url = f"http://127.0.0.1:{server.port}"
    outcome = await visit(workspace, f"{url}/pdf", allow_private=True, ports=[server.port])
    assert "page 1 of 2\nThe first page\n\npage 2 of 2\nThe second page" in outcome.text
    outcome = await visit(workspace, f"{url}/broken", allow_private=True, ports=[server.port])
    assert outcome.error == "it is damaged, or reading it takes too much"


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("http://127.0.0.1:{port}/page", "port {port} is not fetched from; 80, 443 are"),
        ("http://localhost/", "localhost is no address of the public internet"),
        ("http://127.1/", "no address of the public internet"),
        ("http://2130706433/", "no address of the public internet"),
        ("http://0x7f.1/", "no address of the public internet"),
        ("http://[::1]/", "no address of the public internet"),
        ("http://[::ffff:169.254.169.254]/latest/meta-data/", "no address of the public internet"),
        ("http://169.254.169.254/latest/meta-data/", "no address of the public internet"),
        ("http://user:word@example.org/", "user name or password"),
        ("file:///etc/passwd", "begins with https:// or http://"),
        ("gopher://127.0.0.1/", "begins with https:// or http://"),
        ("/etc/passwd", "begins with https:// or http://"),
        ("http:///x", "begins with https:// or http://"),
        ("http://no-such-host.invalid/", "there is no host of the name 'no-such-host.invalid'"),
        ("http://a b/", ""),
        ("http://exa\nmple.org/", "not an address"),
        ("http://" + "a" * 70 + ".org/", ""),
        ("http://example.org/" + "x" * 2000, "at most 2,000 are taken"),
        ("", "begins with https:// or http://"),
    ],
)
async def test_what_is_not_public_is_not_fetched(server: WebServer, workspace: Workspace, url: str, problem: str) -> None:
    server.requests.clear()
    outcome = await visit(workspace, url.format(port=server.port))
    assert outcome.error
    assert problem.format(port=server.port) in outcome.error
    assert not server.requests


@pytest.mark.parametrize(
    ("host", "options", "problem"),
    [
        ("example.org", {"allowed_domains": ["wiki.example.org"]}, "example.org is not among the sites that may be visited"),
        ("wiki.example.org.", {"allowed_domains": ["wiki.example.org"]}, ""),
        ("EN.wiki.example.org", {"allowed_domains": ["wiki.example.org"]}, ""),
        ("evilwiki.example.org", {"allowed_domains": ["wiki.example.org"]}, "not among the sites"),
        ("wiki.example.org.evil.net", {"allowed_domains": ["wiki.example.org"]}, "not among the sites"),
        ("a.example.org", {"refused_domains": ["example.org"]}, "a.example.org is not to be visited"),
        ("127.0.0.2", {"allowed_domains": ["example.org"]}, "not among the sites"),
    ],
)
async def test_sites_are_those_that_the_options_name(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, host: str, options: dict[str, object], problem: str
) -> None:
    with serve("127.0.0.2") as server:
        server.replies["/"] = reply(b"here", "text/plain")
        names = ("wiki.example.org.", "wiki.example.org", "en.wiki.example.org", "example.org", "a.example.org")
        name_hosts(monkeypatch, {name: [["127.0.0.2"]] for name in names})
        outcome = await visit(workspace, f"http://{host}:{server.port}/", allow_private=True, ports=[server.port], **options)
    assert problem in outcome.error
    assert bool(outcome.error) == bool(problem)


def is_first(address: str) -> bool:
    """The only address that may be connected to in what follows."""
    return address == "127.0.0.2"


def test_a_name_is_looked_up_once_and_what_was_looked_at_is_connected_to(monkeypatch: pytest.MonkeyPatch) -> None:
    with serve("127.0.0.2") as public, serve("127.0.0.3", public.port) as private:
        public.replies["/"] = reply(b"public", "text/plain")
        asked = name_hosts(
            monkeypatch, {"rebound.test": [["127.0.0.2"], ["127.0.0.3"]], "both.test": [["127.0.0.2", "127.0.0.3"]]}
        )
        fetched = fetch(f"http://rebound.test:{public.port}/", LIMITS, lambda _: None, is_first)
        assert (fetched.data, asked) == (
            b"public",
            ["rebound.test", "127.0.0.2"],
        )  # the second time an address, which the system does not look up
        assert f"Host: rebound.test:{public.port}" in public.requests[0]
        with pytest.raises(ToolError, match=r"both\.test is no address of the public internet"):
            fetch(f"http://both.test:{public.port}/", LIMITS, lambda _: None, is_first)
    assert not private.requests


@pytest.mark.parametrize(
    ("location", "problem"),
    [
        ("http://127.0.0.3:{port}/secret", "127.0.0.3 is no address of the public internet"),
        ("//private.test:{port}/secret", "private.test is no address"),
        ("http://rebound.test:{port}/secret", "rebound.test is no address"),
        ("file:///etc/passwd", "begins with https:// or http://"),
        ("http://me:word@public.test:{port}/", "user name or password"),
        ("/loop", "it redirects more than 3 times"),
        ("http://[::1", "not an address|cannot be fetched"),
    ],
)
def test_redirects_are_looked_at_like_the_first_address(monkeypatch: pytest.MonkeyPatch, location: str, problem: str) -> None:
    with serve("127.0.0.2") as public, serve("127.0.0.3", public.port) as private:
        public.replies["/"] = reply(status="302 Found", Location=location.format(port=public.port))
        public.replies["/loop"] = reply(status="307 Temporary Redirect", Location="/loop")
        private.replies["/secret"] = reply(b"secret")
        names = {"public.test": [["127.0.0.2"]], "private.test": [["127.0.0.3"]], "rebound.test": [["127.0.0.3"]]}
        name_hosts(monkeypatch, names)
        with pytest.raises(ToolError, match=problem):
            fetch(f"http://public.test:{public.port}/", LIMITS, lambda _: None, is_first)
        assert len(public.requests) <= 4
    assert not private.requests


def test_a_redirect_within_the_site_is_followed_and_an_address_is_required(server: WebServer) -> None:
    server.replies["/from"] = reply(status="301 Moved", Location="/to#part")
    server.replies["/to"] = reply(b"there", "text/plain")
    fetched = fetch(f"http://127.0.0.1:{server.port}/from", LIMITS, lambda _: None, lambda _: True)
    assert (fetched.data, fetched.url.partition("#")[0]) == (b"there", f"http://127.0.0.1:{server.port}/to")
    assert issubclass(ConfigError, ValueError)
    assert make_tool(ToolOptions()).describe()["function"]["parameters"]["required"] == ["url"]


def drip(head: bytes, body: bytes):
    def answer(connection: socket.socket, _: str) -> None:
        connection.sendall(head)
        while True:
            connection.sendall(body)
            time.sleep(0.02)

    return answer


def flood(head: bytes):
    def answer(connection: socket.socket, _: str) -> None:
        connection.sendall(head)
        while True:
            connection.sendall(b"x" * 65_536)

    return answer


BOMB = gzip.compress(bytes(50_000_000), 9)


@pytest.mark.seconds
@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (drip(b"", b"H"), "it did not answer within 0.5 s"),
        (drip(b"HTTP/1.1 200 OK\r\n", b"A: b\r\n"), "within 0.5 s"),
        (drip(b"HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\n", b"x"), "within 0.5 s"),
        (drip(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n"), "within 0.5 s"),
        (lambda connection, _: time.sleep(3), "within 0.5 s"),
        (lambda connection, _: None, "it does not answer"),
        (flood(b"HTTP/1.1 200 OK\r\n\r\n"), "more than 1,000,000 bytes"),
        (flood(b"HTTP/1.1 200 OK\r\nA: "), r"it does not answer|more than"),
        (reply(b"x" * 1_000_001, "text/plain"), "more than 1,000,000 bytes"),
        (reply(BOMB, Content_Encoding="gzip"), "it holds more than 1,000,000 bytes"),
        (reply(gzip.compress(BOMB), Content_Encoding="gzip, gzip"), "it is packed as 'gzip, gzip'"),
        (reply(gzip.compress(gzip.compress(b"") + BOMB), Content_Encoding="gzip,gzip"), "it is packed as 'gzip,gzip'"),
        (reply(b"text", Content_Encoding="br"), "it is packed as 'br'"),
        (reply(zlib.compress(bytes(50_000_000)), Content_Encoding="deflate"), "it holds more than 1,000,000 bytes"),
        (reply(b"no gzip", Content_Encoding="gzip"), "cannot be fetched"),
        (reply(b"", status="404 Not Found"), "it answers 404 Not Found"),
        (reply(b"", status="500 Oops"), "it answers 500"),
        (reply(b"", status="204 None"), "it answers 204"),
        (drip(b"SSH-2.0-OpenSSH\r\n", b"\0"), "within 0.5 s|it does not answer"),
    ],
)
def test_answers_beyond_a_limit_or_against_the_protocol_cost_the_call_alone(server: WebServer, answer, problem: str) -> None:
    server.replies["/bad"] = answer
    started = time.monotonic()
    limits = FetchLimits(timeout_s=0.5 if "0.5" in problem else 20, max_bytes=1_000_000)
    with pytest.raises(ToolError, match=problem):
        fetch(f"http://127.0.0.1:{server.port}/bad", limits, lambda _: None, lambda _: True)
    assert time.monotonic() - started < 10


@pytest.mark.parametrize("content_type", ["image/png", "application/octet-stream", "application/zip", ""])
async def test_what_is_no_text_is_named(server: WebServer, workspace: Workspace, content_type: str) -> None:
    server.replies["/file"] = reply(b"\x89PNG", content_type)
    outcome = await visit(workspace, f"http://127.0.0.1:{server.port}/file", allow_private=True, ports=[server.port])
    assert f"it is of type {content_type or 'unknown'}" in outcome.error


def test_no_proxy_and_no_password_of_the_environment_is_used(
    server: WebServer, monkeypatch: pytest.MonkeyPatch, tmp_path
) -> None:
    (tmp_path / ".netrc").write_text("default login me password secret-word\n")
    monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    server.replies["/plain"] = reply(b"here", "text/plain", Set_Cookie="a=b")
    server.requests.clear()
    for _ in range(2):
        assert fetch(f"http://127.0.0.1:{server.port}/plain", LIMITS, lambda _: None, lambda _: True).data == b"here"
    assert not any(word in " ".join(server.requests).lower() for word in ("authorization", "cookie:"))


@pytest.mark.parametrize("domain", ["https://example.org", "example.org/", "*.example.org", "Example.org", "", "a..b"])
def test_what_is_no_domain_is_refused_with_the_options(domain: str) -> None:
    with pytest.raises(ValueError, match="is no domain"):
        VisitConfig(allowed_domains=(domain,))


@pytest.mark.parametrize(
    "address", ["93.184.216.34", "1.1.1.1", "8.8.8.8", "2606:4700:4700::1111", "2a00:1450:4001:81b::200e", "::ffff:8.8.8.8"]
)
def test_public_addresses_are_reached(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "127.255.255.254", "0.0.0.0", "0.1.2.3", "10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1"),
        *("169.254.169.254", "169.254.170.2", "100.64.0.1", "100.100.100.200", "192.0.0.192", "192.0.2.1", "198.18.0.1"),
        *("198.51.100.1", "203.0.113.1", "224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255", "168.63.129.16"),
        *("::", "::1", "fe80::1", "fe80::1%eth0", "fec0::1", "fc00::1", "fd00:ec2::254", "ff02::1", "2001:db8::1", "100::1"),
        *("::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:a9fe:a9fe", "::127.0.0.1", "::ffff:0:127.0.0.1"),
        *("64:ff9b::7f00:1", "64:ff9b::808:808", "64:ff9b:1::7f00:1", "2002:7f00:1::1", "2001:0:7f00:1::", "192.88.99.1"),
        *("", "localhost", "127.1", "2130706433", "0x7f000001", "[::1]"),
    ],
)
def test_all_others_are_not(address: str) -> None:
    assert not is_public(address)
