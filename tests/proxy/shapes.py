"""Heads and bodies that two servers might read as different requests, and what has to become of each.

`REFUSED`: by status, what is answered with an error of that status, after which the connection closes, and
of which no worker hears. `TAKEN`: what is a request, and how a worker reads it. Where RFC 9112 lets a server
choose and nginx 1.22 is stricter than the RFC, the answer is nginx's.
"""

from __future__ import annotations

GET = b"GET /g HTTP/1.1\r\n"
POST = b"POST /p HTTP/1.1\r\n"
HOST = b"host: a\r\n"
CHUNKED = b"transfer-encoding: chunked\r\n"
LAST = b"0\r\n\r\n"
INNER = b"GET /smuggled HTTP/1.1\r\nhost: b\r\n\r\n"
END = b"\r\n"


def coded(value: bytes) -> bytes:
    return POST + HOST + b"transfer-encoding: " + value + END + END + LAST


def long(value: bytes) -> bytes:
    return POST + HOST + b"content-length: " + value + END + END + b"{}"


def chunks(body: bytes) -> bytes:
    return POST + HOST + CHUNKED + END + body


def hosted(value: bytes) -> bytes:
    return GET + b"host: " + value + END + END


def asks(target: bytes) -> bytes:
    return b"GET " + target + b" HTTP/1.1\r\n" + HOST + END


def has(line: bytes) -> bytes:
    return GET + HOST + line + END + END


def versed(version: bytes) -> bytes:
    return b"GET /g " + version + END + HOST + END


_CODINGS = (  # RFC 9112, 6.1 and 6.3: chunked has to be last, and once
    *(b"chunked, identity", b"chunked, gzip", b"xchunked", b"identity", b"gzip", b"chunked, chunked", b""),
    *(b"chunked\t", b"chunked\x0b", b"\x0bchunked", b'"chunked"', b"chunked;q=1", b"chunked,", b",chunked"),
    *(b"chunked\0", b"chun\rked", b"chunked\x01", b"gzip, chunked, chunked", b"chunked chunked"),
)
_LENGTHS = (  # RFC 9112, 6.3: digits, once
    *(b"+2", b"-2", b"0x2", b"2,2", b"2, 2", b"2, 3", b"2 2", b"2;", b"", b"2.0", b"1e1", b"2\0", b"2\x0b"),
    *(b"18446744073709551616", b"18446744073709551618", b"9" * 40, b"\xb2", b"two", b"2_0"),
)
_SIZES = (  # RFC 9112, 7.1; sizes that do not fit are refused, not cut
    *(b"10000000000000002", b"1" + b"0" * 40, b"0x2", b"+2", b"-2", b" 2", b"2 ", b"2\t", b"", b"2 ;a=b"),
    *(b"g", b"2;a\rb", b"2;a\nb", b"2;a\0b", b"2; a", b"2;"),
)
_BODIES = (
    *(b"2\n{}\r\n" + LAST, b"2\r\n{}\n" + LAST, b"2\r\n{}" + LAST, b"2\r\n{}x\r\n" + LAST, b"0\n\n"),
    *(b"2\r\n{}\r\n0\r\n%b\r\n\r\n" % line for line in (b"bad", b" x: y", b"x : y", b"a: b\0", b"a: b\rc")),
    *(b"2\r\n{}\r\n0\r\n%b\r\n\r\n" % line for line in (b"content-length: 50", CHUNKED.strip())),
)
_HOSTS = (  # RFC 3986, 3.2
    *(b"", b"a b", b"a/b", b"user@a", b"a:80:90", b"a:x", b"a\\b", b"a?b", b"a#b", b"[::1", b"::1", b"\xe9"),
    *(b"a<b", b"..", b".a", b"a..b", b"[a", b"[::1]x", b":80", b"a, b", b"http://a"),
)
_TARGETS = (  # RFC 9112, 3.2
    *(
        b"g",
        b"a:80",
        b"*",
        b"/g x",
        b"/g\0",
        b"/g\x01",
        b"/g\x7f",
        b"/g\xe9",
        b"/g\tx",
        b"/g#x",
        b"/%",
        b"/%zz",
    ),
    *(
        b"/%00",
        b"ftp://b/g",
        b"http://u:p@b/g",
        b"http:///g",
        b"http://b:99999/g",
        b"http://b,\x01/g",
        b"http:/g",
    ),
)
_LINES = (  # RFC 9112, 5
    *(
        b"x\0y: a",
        b"x: a\0b",
        b"x: a\x01b",
        b"x: a\x7fb",
        b"x: a\r\n b",
        b"x: a\r\n\tb",
        b": a",
        b"bad",
        b"a b: c",
    ),
    *(b"a(b: c", b"a\xe9b: c", b"x: a\nb: c", b"x: a\rb: c", b"x : a", b"x\t: a", b" x: a", b"x: a\r"),
    *(b"transfer-encoding : chunked", b"transfer-encoding:\r\n chunked", b"content-length : 2", HOST.strip()),
    *(b"content-length:\r\n 2", b"host: b", b"host : a", b"content-length: 2\r\ncontent-length: 2"),
)
_VERSIONS = (
    b"HTTP/1",
    b"HTTP/1.",
    b"HTTP/01.1",
    b"HTTP/1.10",
    b"HTTP/x.y",
    b"HTTP/1,1",
    b"http/1.1",
    b"HTTQ/1.1",
)

REFUSED: dict[int, tuple[bytes, ...]] = {
    400: (
        *map(coded, _CODINGS),
        *map(long, _LENGTHS),
        *(chunks(b"%b\r\n{}\r\n" % size + LAST) for size in _SIZES),
        *map(chunks, _BODIES),
        *map(hosted, _HOSTS),
        *map(asks, _TARGETS),
        *map(has, _LINES),
        *map(versed, _VERSIONS),
        POST + HOST + b"content-length: 5\r\n" + CHUNKED + END + LAST,
        POST + HOST + CHUNKED + b"content-length: 5\r\n" + END + LAST,
        POST + HOST + CHUNKED + CHUNKED + END + LAST,
        POST + HOST + CHUNKED + b"transfer-encoding: identity\r\n" + END + LAST,
        POST + HOST + b"transfer-encoding: identity\r\n" + CHUNKED + END + LAST,
        b"POST /p HTTP/1.0\r\n" + HOST + CHUNKED + END + LAST,
        POST + HOST + b"content-length: 2\r\ncontent-length: 3\r\n\r\n{}",
        GET + END,  # no Host
        GET + HOST + HOST + END,
        b"GET /g HTTP/1.0\r\n" + HOST + HOST + END,
        b"GET http://b/g HTTP/1.1\r\n\r\n",
        GET + b" " + HOST + END,
        b"GET /g HTTP/1.1\n" + HOST + END,
        GET + b"host: a\n\r\n",
        GET + HOST + b"\n",
        GET + b"host: a\r\r\n\r\n",
        b"GET /g HTTP/1.1\rhost: a\r\r",
        b"GET /g HTTP/1.1 \r\n" + HOST + END,
        b" GET /g HTTP/1.1\r\n" + HOST + END,
        b"GET /g\r\n",  # HTTP/0.9
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"CONNECT a:80 HTTP/1.1\r\n" + HOST + END,
        b"OPTIONS * HTTP/1.1\r\n" + HOST + END,
        b"G(T /g HTTP/1.1\r\n" + HOST + END,
        b"GET\0 /g HTTP/1.1\r\n" + HOST + END,
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"SSH-2.0-OpenSSH_9.2\r\n",
    ),
    414: (asks(b"/" + b"a" * 70_000),),
    417: tuple(
        POST + HOST + b"expect: " + value + b"\r\ncontent-length: 2\r\n\r\n{}"
        for value in (b"200-ok", b"100-continue, x", b"")
    ),
    431: (GET + HOST + b"x: " + b"a" * 70_000 + END + END,),
    501: (
        coded(b"gzip, chunked"),
        b"FOO /g HTTP/1.1\r\n" + HOST + END,
        b"get /g HTTP/1.1\r\n" + HOST + END,
    ),
    505: (versed(b"HTTP/0.9"), versed(b"HTTP/2.0"), versed(b"HTTP/3.0")),
}

# The bytes, the request line as a worker reads it, and the body.
TAKEN: tuple[tuple[bytes, bytes, bytes], ...] = (
    *(
        (coded(value), b"POST /p", b"")
        for value in (b"chunked", b"Chunked", b" chunked ", b"\tchunked", b"CHUNKED")
    ),
    *((long(value), b"POST /p", b"{}") for value in (b"2", b" 2", b"2 ", b"\t2", b"00002")),
    *(
        (chunks(size + b"\r\n{}\r\n" + LAST), b"POST /p", b"{}")
        for size in (b"2", b"0002", b"2;a=b", b'2;a="b;c"', b"2;a")
    ),
    (chunks(b"1\r\n{\r\n1\r\n}\r\n000\r\n\r\n"), b"POST /p", b"{}"),
    *(
        (chunks(b"2\r\n{}\r\n0\r\n%b\r\n\r\n" % line), b"POST /p", b"{}")
        for line in (b"x: y", b"host: evil", b"expect: x", b"x:")
    ),
    *(
        (hosted(value), b"GET /g", b"")
        for value in (b"a", b"a:80", b"a:", b"A", b"a.", b"[::1]:80", b"1.2.3.4", b"a_b", b"a,b", b"a%41")
    ),
    *(
        (asks(target), b"GET " + whole, b"")
        for target, whole in (
            (b"http://b/g", b"/g"),
            (b"https://b:8/g?x", b"/g?x"),
            (b"HTTP://b", b"/"),
            (b"http://b?x", b"/?x"),
            (b"http://[::1]:8/g", b"/g"),
            (b"//b/g", b"//b/g"),
            (b"/g%0d%0aX", b"/g%0d%0aX"),
            (b'/g"<>\\^`{|}', b'/g"<>\\^`{|}'),
            (b"/g?", b"/g?"),
            (b"/" + b"a" * 5000, b"/" + b"a" * 5000),
        )
    ),
    *(
        (has(line), b"GET /g", b"")
        for line in (b"x:\r\ny: z", b"x: a\tb", b"x: a\xe9b", b"!#$%&'*+-.^_`|~9: a")
    ),
    *((versed(version), b"GET /g", b"") for version in (b"HTTP/1.2", b"HTTP/1.9")),
    *(
        (method + b" /g HTTP/1.1\r\n" + HOST + END, method + b" /g", b"")
        for method in (b"PATCH", b"TRACE", b"DELETE", b"PUT", b"OPTIONS", b"QUERY", b"PURGE")
    ),
    (GET + HOST + CHUNKED + END + LAST, b"GET /g", b""),
    (GET + HOST + b"content-length: 2\r\n\r\n{}", b"GET /g", b"{}"),
    (GET + HOST + b"content-length: %d\r\n\r\n" % len(INNER) + INNER, b"GET /g", INNER),
    (POST + HOST + b"transfer_encoding: chunked\r\ncontent-length: 2\r\n\r\n{}", b"POST /p", b"{}"),
    (POST + HOST + b"connection: content-length\r\ncontent-length: 2\r\n\r\n{}", b"POST /p", b"{}"),
    (
        POST + HOST + b"connection: transfer-encoding\r\n" + CHUNKED + b"\r\n2\r\n{}\r\n" + LAST,
        b"POST /p",
        b"{}",
    ),
    (POST + HOST + b"expect: 100-Continue\r\ncontent-length: 2\r\n\r\n{}", b"POST /p", b"{}"),
    (GET + HOST + b"connection: upgrade\r\nupgrade: h2c\r\nhttp2-settings: AAMA\r\n\r\n", b"GET /g", b""),
    (GET + HOST + b"upgrade: h2c\r\n\r\n", b"GET /g", b""),
    (END + END + GET + HOST + END, b"GET /g", b""),
    (b"GET  /g  HTTP/1.1\r\n" + HOST + END, b"GET /g", b""),
)
