"""Dated events and the calendar. Constants only; no source disputes an event's year, and no two events share one."""

from typing import NamedTuple


class Event(NamedTuple):
    """One event: `name` fits "Which came first, …", `clause` fits "In which year …?"."""

    year: int
    name: str
    clause: str


EVENTS: tuple[Event, ...] = (
    Event(1066, "the Battle of Hastings", "was the Battle of Hastings fought"),
    Event(1215, "the sealing of Magna Carta", "was Magna Carta sealed"),
    Event(1492, "the first voyage of Columbus", "did Columbus first sail to America"),
    Event(1588, "the defeat of the Spanish Armada", "was the Spanish Armada defeated"),
    Event(1666, "the Great Fire of London", "did the Great Fire of London break out"),
    Event(1776, "the Declaration of Independence", "did America declare its independence"),
    Event(1789, "the storming of the Bastille", "was the Bastille stormed"),
    Event(1804, "the crowning of Napoleon", "was Napoleon crowned emperor"),
    Event(1815, "the Battle of Waterloo", "was the Battle of Waterloo fought"),
    Event(1865, "the death of Lincoln", "did President Lincoln die"),
    Event(1869, "the opening of the Suez Canal", "did the Suez Canal open"),
    Event(1889, "the opening of the Eiffel Tower", "did the Eiffel Tower open"),
    Event(1896, "the first modern Olympic Games", "were the first modern Olympic Games held"),
    Event(1903, "the flight of the Wright brothers", "did the Wright brothers first fly"),
    Event(1912, "the sinking of the Titanic", "did the Titanic sink"),
    Event(1914, "the opening of the Panama Canal", "did the Panama Canal open"),
    Event(1918, "the end of the First World War", "did the First World War end"),
    Event(1930, "the first football World Cup", "was the first football World Cup played"),
    Event(1939, "the start of the Second World War", "did the Second World War start"),
    Event(1945, "the founding of the United Nations", "was the United Nations founded"),
    Event(1957, "the launch of Sputnik", "was Sputnik launched"),
    Event(1961, "the space flight of Gagarin", "did Gagarin fly into space"),
    Event(1963, "the death of Kennedy", "did President Kennedy die"),
    Event(1967, "the first heart transplant", "was the first human heart transplant done"),
    Event(1969, "the first Moon landing", "did people first land on the Moon"),
    Event(1989, "the fall of the Berlin Wall", "did the Berlin Wall fall"),
    Event(1991, "the end of the Soviet Union", "did the Soviet Union end"),
    Event(1994, "the opening of the Channel Tunnel", "did the Channel Tunnel open"),
    Event(2001, "the launch of Wikipedia", "was Wikipedia launched"),
    Event(2007, "the first iPhone", "was the first iPhone sold"),
)

MONTHS: tuple[str, ...] = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)

DAYS: tuple[str, ...] = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")

MONTH_LENGTHS: dict[str, int] = dict(zip(MONTHS, (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31), strict=True))

FRAMES: tuple[str, ...] = (
    "From a history quiz printed in 2015.",
    "From an almanac of 2019.",
    "From a school book of 2012.",
    "From a pub quiz held in 2018.",
    "A card from a trivia game sold in 2010.",
    "From a teacher's notes, dated 2021.",
)
