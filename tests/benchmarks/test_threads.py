"""What the benchmark of threads says of what it has measured."""

from __future__ import annotations

from benchmarks.threads import Measured, lines


def of(setting: str, seconds: float, *, num_busy: int = 0, elsewhere: float | None = 0.0) -> Measured:
    return Measured(model="demo", num_busy=num_busy, setting=setting, seconds=seconds, busy_elsewhere=elsewhere)


def test_ratios_are_to_the_best_under_the_same_load() -> None:
    found = [of("one", 4.0), of("all", 2.0), of("one", 6.0, num_busy=2), of("all", 18.0, num_busy=2)]
    ratios = [line.split()[4] for line in list(lines(found))[1:]]
    assert ratios == ["2.00", "1.00", "1.00", "3.00"]


def test_it_says_when_the_machine_was_not_idle() -> None:
    assert "not idle" in list(lines([of("one", 4.0, elsewhere=0.7)]))[-1]
    assert "not idle" not in "\n".join(lines([of("one", 4.0), of("one", 4.0, num_busy=2, elsewhere=2.0)]))
    assert "not known" in list(lines([of("one", 4.0, elsewhere=None)]))[-1]
