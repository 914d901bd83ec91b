from __future__ import annotations

from time import process_time

import httpx2
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from router.prompts import form
from router.prompts.form import MAX_NAME, MAX_PARTS, STEP_BYTES, model_of
from router.prompts.large import parse_large
from router.prompts.request import Kind, parse
from tests.others import somebody_else

FIELD = b'Content-Disposition: form-data; name="%b"\r\n\r\n%b\r\n'
FILE = b'Content-Disposition: form-data; name="file"; filename="%b"\r\nContent-Type: audio/wav\r\n\r\n%b\r\n'


def built(*parts: bytes, end: bytes = b"--b--\r\n") -> bytes:
    return b"".join(b"--b\r\n" + part for part in parts) + end


def field(name: bytes, value: bytes) -> bytes:
    return FIELD % (name, value)


def audio(data: bytes, name: bytes = b"a.wav") -> bytes:
    return FILE % (name, data)


MODEL = field(b"model", b"org/whisper")


@pytest.mark.parametrize(
    "parts",
    [
        (MODEL,),
        (MODEL, audio(b"RIFF")),
        (audio(b"RIFF"), MODEL),
        (field(b"language", b""), audio(b""), field(b"prompt", b"model"), MODEL),
        (MODEL, field(b"model", b"another")),
        (b"content-type: text/plain\r\ncontent-disposition: form-data;name=model\r\n\r\norg/whisper\r\n",),
        (audio(b"x", b'model"; name="model'), MODEL),
        (audio(b"\r\n--c\r\n" + field(b"model", b"of another form")), MODEL),
        (audio(bytes(range(256)) * 8192), MODEL),
    ],
)
async def test_the_model_is_found_wherever_the_form_has_it(parts: tuple[bytes, ...]) -> None:
    body = built(*parts)
    assert model_of(body) == "org/whisper"
    assert parse(Kind.OTHER, body).model == "org/whisper"
    assert (await parse_large(Kind.OTHER, body)).model == "org/whisper"


@pytest.mark.parametrize(
    "body",
    [
        b"--",
        b"--b\r\n",
        b"--b--\r\n",
        b"-- \r\n" + MODEL,
        b"--" + b"b" * 71 + b"\r\n" + MODEL,
        b"--b\n" + MODEL.replace(b"\r", b""),
        built(audio(b"RIFF")),
        built(audio(MODEL)),
        built(field(b"model", b"")),
        built(field(b"models", b"m")),
        built(field(b"model", b"\xff")),
        built(field(b"model", b"m" * (MAX_NAME + 1))),
        built(b'Content-Disposition: form-data; name="model"; filename="m"\r\n\r\nm\r\n'),
        built(MODEL, end=b"")[:-2],
        built(b"x: " + b"y" * 5000 + b"\r\n" + MODEL),
        built(*[field(b"x", b"")] * MAX_PARTS, MODEL),
        built(audio(b"RIFF"), end=b"--b--\r\n" + MODEL),
    ],
)
async def test_what_is_no_form_with_a_model_has_none(body: bytes) -> None:
    assert model_of(body) is None
    assert (await parse_large(Kind.OTHER, body)).model is None


@pytest.mark.parametrize("shift", range(-6, 3))
def test_a_boundary_across_two_steps_is_seen(shift: int) -> None:
    start = len(built(audio(b""), end=b""))
    assert model_of(built(audio(b"x" * (STEP_BYTES - start + shift)), MODEL)) == "org/whisper"


@given(st.binary(max_size=200), st.integers(0, 400))
@example(b"\r\n--b", 0)
def test_nothing_that_comes_raises(piece: bytes, at: int) -> None:
    body = built(audio(piece), MODEL, audio(piece))
    found = model_of(body[:at] + piece + body[at:])
    assert found is None or found
    assert model_of(b"--" + piece) is None


@given(st.text(min_size=1, max_size=40), st.binary(max_size=100))
def test_what_a_client_writes_is_read(model: str, data: bytes) -> None:
    request = httpx2.Request("POST", "http://r/", data={"model": model}, files={"file": ("a", data)})
    assert parse(Kind.OTHER, request.read()).model == model


async def test_a_large_hostile_form_costs_little_and_lets_others_run() -> None:
    async with somebody_else() as other:
        began = process_time()
        for filling in (b"\r\n--c", b"\r\n--", b"\r"):
            body = b"--" + b"b" * 70 + b"\r\n" + audio(filling * (8 * 2**20 // len(filling)))
            assert (await parse_large(Kind.OTHER, body)).model is None
        assert process_time() - began < 3.0
    assert other.turns > 3 * (8 * 2**20 // form.STEP_BYTES) - 8
