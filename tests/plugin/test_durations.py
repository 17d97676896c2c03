"""How long a sample took: its own share of the time that its chunk's call took."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import pytest

from tests.plugin.suites_for_tests import SUMS

# The call takes a second in all; nearly all of it is the third sample's.
_SLOW = """
import time

import pytest
from pytest_llmeval.types import GenerateResponse


class Slow:
    def generate(self, requests):
        time.sleep(1)
        return [GenerateResponse(text="2", seconds=9.9 if "4 + 4" in one.prompt else 0.1) for one in requests]


@pytest.fixture(scope="session")
def llm_model():
    return Slow()
"""

ALL = 0.998  # of a second: each of the four times in the file is rounded to a thousandth


@pytest.fixture
def slow(llm_pytester: pytest.Pytester) -> pytest.Pytester:
    llm_pytester.makeconftest(_SLOW)
    llm_pytester.makefile(".yaml", sums=SUMS)
    return llm_pytester


def test_the_slowest_sample_is_not_the_one_that_asked(slow: pytest.Pytester) -> None:
    result = slow.runpytest("-p", "no:xdist", "--durations=1", "--junitxml=out.xml", "sums.yaml")
    result.stdout.re_match_lines([r"=+ slowest 1 durations =+", r"[\d.]+s call +sums.yaml::s3"])
    times = {case.attrib["name"]: float(case.attrib["time"]) for case in cases(slow)}
    assert max(times, key=times.__getitem__) == "s3"
    assert sum(times.values()) >= ALL, "what was taken from the first is still there"


def test_the_sum_is_the_time_that_went_by(slow: pytest.Pytester, workers: list[str]) -> None:
    result = slow.runpytest(*workers, "--llm-report=out.json", "--junitxml=out.xml", "sums.yaml")
    assert result.ret == 0
    times = {case.attrib["name"]: float(case.attrib["time"]) for case in cases(slow)}
    assert sorted(times) == ["s1", "s2", "s3", "s4"]
    assert min(times.values()) >= 0
    assert sum(times.values()) >= ALL


def cases(folder: pytest.Pytester) -> list[ElementTree.Element]:
    return list(ElementTree.parse(folder.path / "out.xml").iter("testcase"))
