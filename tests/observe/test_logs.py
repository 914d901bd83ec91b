from __future__ import annotations

import json
import re
import subprocess
import sys

STAMP = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"


def logged(*statements: str, level: str = "info") -> list[str]:
    """Return the lines on stderr of a process that configures its logs and runs the statements."""
    program = ["import logging", "from router.observe import logs", f"logs.configure({level!r})", *statements]
    ended = subprocess.run(
        [sys.executable, "-c", "\n".join(program)], capture_output=True, text=True, timeout=60, check=True
    )
    assert not ended.stdout
    return ended.stderr.splitlines()


def test_a_change_of_state_is_one_line_with_time_and_level() -> None:
    (line,) = logged("logging.getLogger('router.fleet.probe').info('worker %s: ready', 'http://a:1')")
    assert re.fullmatch(rf"{STAMP} INFO worker http://a:1: ready", line)


def test_a_text_from_outside_cannot_forge_a_line() -> None:
    (line,) = logged(r"logging.getLogger('router').info('why: %s', 'a\n2026 INFO b\r\x1b[31m')")
    assert line.endswith(r"INFO why: a\n2026 INFO b\r\x1b[31m")


def test_a_text_from_outside_cannot_steer_a_terminal_from_json_either() -> None:
    statements = (
        "logs.configure('info', form='json')",
        r"logging.getLogger('router').info('%s', 'a\x1b[31m\x7f\x9b\u202e')",
    )
    (line,) = logged(*statements)
    assert line.isprintable()
    assert json.loads(line)["message"] == "a\x1b[31m\x7f\x9b\u202e"


def test_a_line_below_the_level_is_not_shown() -> None:
    statement = "logging.getLogger('router').debug('detail')"
    assert not logged(statement)
    assert len(logged(statement, level="debug")) == 1


def test_libraries_are_silent_below_a_warning_and_access_is_never_logged() -> None:
    lines = logged(
        "logging.getLogger('uvicorn.error').info('Started server process')",
        "logging.getLogger('uvicorn.access').info('GET /')",
        "logging.getLogger('asyncio').info('selector')",
        "logging.getLogger('uvicorn.error').error('failed')",
    )
    assert [line.split(" ", 1)[1] for line in lines] == ["ERROR failed"]


def test_a_traceback_follows_its_line() -> None:
    lines = logged("try: 1 / 0", "except ZeroDivisionError: logging.getLogger('router').exception('broken')")
    assert lines[0].endswith("ERROR broken")
    assert lines[1].startswith("Traceback")


def test_what_an_exception_says_is_left_out_for_it_may_be_a_piece_of_a_prompt() -> None:
    lines = logged(
        "try:",
        "    try: {}['secret' + ' prompt']",
        "    except KeyError as error: raise ValueError('secret' + ' prompt') from error",
        "except ValueError: logging.getLogger('uvicorn.error').exception('broken')",
    )
    assert "secret prompt" not in "\n".join(lines)
    assert [line for line in lines if line in {"ValueError", "KeyError"}] == ["ValueError", "KeyError"]


def test_what_the_loop_catches_is_logged_without_what_it_says() -> None:
    lines = logged(
        "import asyncio",
        "async def fail(): raise ValueError('secret' + ' prompt')",
        "async def main():",
        "    asyncio.get_running_loop().set_exception_handler(logs.log_lost_exception)",
        "    asyncio.ensure_future(fail())",
        "    await asyncio.sleep(0)",
        "    await asyncio.sleep(0)",
        "asyncio.run(main())",
    )
    assert lines[0].endswith("ERROR Task exception was never retrieved")
    assert lines[-1] == "ValueError"
    assert "secret prompt" not in "\n".join(lines)


def test_a_line_that_cannot_be_put_together_says_whose_it_is_and_not_what_it_says() -> None:
    (line,) = logged("logging.getLogger('router.test').warning('%d', 'secret')")
    assert line.endswith("ERROR a line of router.test cannot be put together")
