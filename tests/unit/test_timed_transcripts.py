"""Lines of transcripts with a time, as chat programs export them in several languages."""

from __future__ import annotations

import pytest

from graphmem.transfer.sources.timed_transcripts import messages

EVE = "2023-12-24T21:15"


@pytest.mark.parametrize(
    "line, name, at",
    [
        ("[12/24/23, 9:15:03\u202fPM] Ana: Hi", "Ana", f"{EVE}:03"),
        ("\u200e[24.12.23, 21:15:03] Ana: Hi", "Ana", f"{EVE}:03"),
        ("12/24/23, 9:15 PM - Ana: Hi", "Ana", f"{EVE}:00"),
        ("24/12/2023 à 21:15 - Ana : Hi", "Ana", f"{EVE}:00"),
        ("24/12/23, 9:15 p. m. - Ana: Hi", "Ana", f"{EVE}:00"),
        ("24.12.2023 klo 21.15 - ~\u202fAna: Hi", "Ana", f"{EVE}:00"),
        ("2023-12-24 21:15 - \u202a+49 170 1234\u202c: Hi", "+49 170 1234", f"{EVE}:00"),
        ("2023. 12. 24. 오후 9:15 - 김민수: Hi", "김민수", f"{EVE}:00"),
        ("2023/12/24 下午9:15 - 王磊: Hi", "王磊", f"{EVE}:00"),
        ("٢٤/١٢/٢٠٢٣، ٩:١٥ م - Ana: Hi", "Ana", f"{EVE}:00"),
        ("12/24/23, 12:15 AM - Ana: Hi", "Ana", "2023-12-24T00:15:00"),
        ("12/24/23, 12:15 PM - Ana: Hi", "Ana", "2023-12-24T12:15:00"),
    ],
)
def test_times_and_names_are_read_in_each_form(line: str, name: str, at: str) -> None:
    assert messages([line], "user") == [{"role": "user", "name": name, "content": "Hi", "timestamp": at}]


@pytest.mark.parametrize(
    "dates, first",
    [
        (["03/04/23", "05/04/23", "01/05/23"], "2023-04-03"),  # with the month first they would go back
        (["03/04/23", "03/15/23"], "2023-03-04"),
        (["03/04/23", "15/04/23"], "2023-04-03"),
        (["03/04/23"], "2023-04-03"),
    ],
)
def test_the_order_of_day_and_month_is_that_of_the_whole_chat(dates: list[str], first: str) -> None:
    read = messages([f"{date}, 21:15 - Ana: Hi" for date in dates], "user")
    assert read is not None
    assert read[0]["timestamp"] == f"{first}T21:15:00"
    alone = messages(["03/04/23, 9:15 PM - Ana: Hi"], "user")
    assert alone is not None
    assert alone[0]["timestamp"] == "2023-03-04T21:15:00"


@pytest.mark.parametrize(
    "said, content",
    [
        ("<Media omitted>", None),
        ("<Médias omis>", None),
        ("\u200eBild weggelassen", None),
        ("This message was deleted", None),
        ("Du hast diese Nachricht gelöscht.", None),
        ("IMG-20231224-WA0001.jpg (file attached)", None),
        ("IMG-20231224-WA0001.jpg (file attached)\nOur flat", "Our flat"),
        ("In Lisbon <This message was edited>", "In Lisbon"),
        ("In Lisbon\u200e<Diese Nachricht wurde bearbeitet.>", "In Lisbon"),
        ("In Lisbon,\nby the river <This message was edited>", "In Lisbon,\nby the river"),
        ("at 9: <b>bold</b> <3", "at 9: <b>bold</b> <3"),
    ],
)
def test_only_what_was_said_is_a_message(said: str, content: str | None) -> None:
    lines = ["24.12.23, 21:14 - Ana added Ben\nand more", f"24.12.23, 21:15 - Ana: {said}", "25.12.23, 08:00 - Ben: Hi"]
    read = messages("\n".join(lines).split("\n"), "user")
    assert read is not None
    assert [one["content"] for one in read] == [*([] if content is None else [content]), "Hi"]


@pytest.mark.parametrize(
    "line",
    ["Ana: Hi", "On 24.12.23, 21:15 - Ana: Hi", "99.99.23, 21:15 - Ana: Hi", "24.12.23, 21:15 - Ana left", "24.12"],
)
def test_other_lines_are_no_such_transcript(line: str) -> None:
    assert messages([line, "Ana: Hi"], "user") is None
