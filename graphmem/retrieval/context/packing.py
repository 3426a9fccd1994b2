"""Chooses sentences of memories for a context of limited length: the greatest value for each added character. Pure."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import date, tzinfo
from heapq import heapify, heappop, heappush
from itertools import islice
from math import ceil

from graphmem.model import MemoryRecord
from graphmem.retrieval.context.frame import GAP, line_head, one_line, said_between, speaker_shown
from graphmem.retrieval.context.relative_dates import RelativeDate, dates_of, insert_dates
from graphmem.retrieval.context.sentence_values import Sentence
from graphmem.retrieval.sentence_matching import UNSPLIT_CHARS
from graphmem.text import claims, is_question, split_title, tokens
from graphmem.times import shown

# What a further sentence of a memory counts that is in the block already: the lines around it help to understand it.
FURTHER_FACTOR = 1.5
# Sentences whose words are the same to at least this part (Jaccard) say one thing.
REPETITION = 0.8
# A memory of at most so many characters gets a single sentence back that was left out between two others.
SHORT_CHARS = 200
# A reply of fewer characters is shown with the question before it, in at most so many characters; a pronoun with the
# sentence before it, if that has at most so many.
REPLY_CHARS, QUESTION_CHARS = 80, 90
# The fewest characters to which a sentence is cut; fewer say nothing.
MIN_CHARS = 60

Size = Callable[[str], int]

# Words that are left out have a letter or a digit.
_TELLING = re.compile(r"[^\W_]")
# Beginnings that mean something said just before.
_PRONOUN = re.compile(
    r"^\W*(?:(?:he|she|it|they|that|this|these|those|his|her|their|its)\b|[他她它这這那])", re.IGNORECASE
)


@dataclass(slots=True)
class _Line:
    """A memory's line: its day, its beginning, its chosen sentences by number, and the days of what says the same.

    Without a chosen sentence and without `cut`, the beginning of one, it is not in the block. `last_told` is the place
    of its last sentence that is no question.
    """

    record: MemoryRecord
    day: date
    head: str
    last_told: int
    chosen: dict[int, _Piece] = field(default_factory=dict)
    repeated: set[date] = field(default_factory=set)
    question: str = ""
    cut: str = ""

    def omits(self, begin: int, end: int) -> bool:
        """Whether the memory says something between these places of its text."""
        return _TELLING.search(self.record.text, begin, end) is not None

    def ended(self, text: str, end: int) -> str:
        """Returns what is shown of the memory up to `end`, marked if it goes on with more than questions."""
        return f"{text}{GAP.rstrip()}" if end <= self.last_told and self.omits(end, len(self.record.text)) else text


class _Piece:
    """A sentence in its line: as `said`, in one line (`text`), its `words` as terms; with `dates` once it may fit."""

    __slots__ = ("dates", "line", "said", "sentence", "size", "text", "words")

    def __init__(self, sentence: Sentence, line: _Line, size: Size) -> None:
        self.sentence, self.line, self.said = sentence, line, sentence.text
        self.size, self.text, self.words = size(self.said), one_line(self.said), frozenset(tokens(self.said))
        self.dates: Sequence[RelativeDate] = ()

    def dated(self, shown: set[str]) -> str:
        """Returns the text with its dates but those `shown`, to which it adds them."""
        return insert_dates(self.text, self.dates, shown)


def pack(sentences: Sequence[Sentence], room: int, zone: tzinfo | None, size: Size = len) -> list[str]:
    """Returns the lines of a context, the newest first, of at most `room` together (in units of `size`).

    Each has the day in `zone` (None: UTC). Relative words of time have their dates behind them. Where nothing fits
    whole, the sentence worth most is cut.
    """
    packer = _Packer(sentences, room, zone, size)
    packer.take_best()
    packer.complete()
    return packer.lines()


class _Packer:
    def __init__(self, sentences: Sequence[Sentence], room: int, zone: tzinfo | None, size: Size) -> None:
        self._room = room
        self._size = size
        self._lines: dict[str, _Line] = {}
        for record in {sentence.record.id: sentence.record for sentence in sentences}.values():
            day = shown(record.at, zone).date()
            head = line_head(day.isoformat(), speaker_shown(record.speaker, record.role))
            title, _ = split_title(record.text)
            last_told = len(record.text) if len(record.text) > UNSPLIT_CHARS else 0  # not all sentences may be here
            self._lines[record.id] = _Line(record, day, f"{head}{one_line(title)}: " if title else head, last_told)
        for sentence in sentences:
            if not is_question(sentence.text):
                line = self._lines[sentence.record.id]
                line.last_told = max(line.last_told, sentence.span[0])
        self._pieces = [_Piece(sentence, self._lines[sentence.record.id], size) for sentence in sentences]
        self._taken_pieces: list[_Piece] = []
        self._places_of = defaultdict[str, list[int]](list)  # among the pieces taken, by word

    def take_best(self) -> None:
        """Takes sentences as long as there is room, by value for each added character, each thing said once."""
        pieces, siblings = self._pieces, defaultdict[str, list[int]](list)
        for place, piece in enumerate(pieces):
            siblings[piece.line.record.id].append(place)
        gap, heads = self._size(GAP), {uid: self._size(line.head) for uid, line in self._lines.items()}

        def gain(piece: _Piece) -> float:
            further = bool(piece.line.chosen)
            length = piece.size + (gap if further else heads[piece.line.record.id])
            return (FURTHER_FACTOR if further else 1.0) * piece.sentence.value / max(length, 1)

        gains = list(map(gain, pieces))
        queue = [(-gain, place) for place, gain in enumerate(gains)]
        heapify(queue)
        left = set(range(len(pieces)))
        while queue:
            negative_gain, place = heappop(queue)
            if place not in left or gains[place] != -negative_gain:
                continue  # taken, or its gain has changed since
            left.discard(place)
            if self._take(pieces[place]):
                for other in left.intersection(siblings[pieces[place].line.record.id]):
                    gains[other] = gain(pieces[other])
                    heappush(queue, (-gains[other], other))
        if not self._taken_pieces and pieces:
            self._cut(max(pieces, key=lambda piece: piece.sentence.value))

    def _take(self, piece: _Piece) -> bool:
        """Adds a sentence; returns False if it does not fit or says what is there."""
        line = piece.line
        if repeated := self._repeated(piece):
            if repeated is not line:
                repeated.repeated.add(line.day)
            return False
        if self._cost(piece, piece.text) > self._room:  # with dates it would be longer
            return False
        piece.dates = dates_of(piece.text, line.record.said_at.date(), line.day.year)
        cost = self._cost(piece, piece.dated(set()))
        if cost > self._room:
            return False
        self._room -= cost
        line.chosen[piece.sentence.number] = piece
        line.question = piece.sentence.question
        for word in piece.words:
            self._places_of[word].append(len(self._taken_pieces))
        self._taken_pieces.append(piece)
        return True

    def _cost(self, piece: _Piece, text: str) -> int:
        """Returns what the text of a sentence adds to the block, at most."""
        line = piece.line
        if line.chosen:
            return self._size(f"{GAP}{text}")
        return self._size(f"{line.head}{line.ended(text, piece.sentence.span[1])}\n")

    def _cut(self, piece: _Piece) -> None:
        """Takes the beginning of a sentence that does not fit."""
        line, text = piece.line, piece.text
        while len(text) >= MIN_CHARS and self._size(f"{line.head}{text}{GAP.rstrip()}\n") > self._room:
            text = text[: max(text.rfind(" ", 0, len(text) - 1), len(text) * 9 // 10)].rstrip()
        if len(text) >= MIN_CHARS:
            line.cut = f"{text}{GAP.rstrip()}"

    def _repeated(self, piece: _Piece) -> _Line | None:
        """Returns the line of the same speaker that says the same; None if there is none."""
        words = piece.words
        # One that shares enough words has one at least of any so many.
        telling = islice(words, len(words) - ceil(REPETITION * len(words)) + 1)
        for place in sorted({place for word in telling for place in self._places_of.get(word, ())}):
            other = self._taken_pieces[place]
            if (
                len(words & other.words) >= REPETITION * len(words | other.words)
                and _speaker(other) == _speaker(piece)
                and claims(other.said) == claims(piece.said)
            ):
                return other.line
        return None

    def complete(self) -> None:
        """Uses the room that is left for what makes sentences clear: those between or before them, and questions."""
        by_number = {(piece.line.record.id, piece.sentence.number): piece for piece in self._pieces}
        for line in self._taken():
            uid = line.record.id
            for number in sorted(line.chosen):
                between, before = by_number.get((uid, number + 1)), by_number.get((uid, number - 1))
                if between and number + 2 in line.chosen and len(line.record.text) <= SHORT_CHARS:
                    self._take(between)
                if before and len(before.said) <= QUESTION_CHARS and _PRONOUN.match(line.chosen[number].said):
                    self._take(before)
            reply = "".join(piece.said for piece in line.chosen.values())
            question = one_line(line.question)
            cost = self._size(_asked(question))
            if not question or len(reply) >= REPLY_CHARS or len(question) > QUESTION_CHARS or cost > self._room:
                line.question = ""
            else:
                line.question, self._room = question, self._room - cost
            if line.repeated and (note := self._size(_said_again(line))) <= self._room:
                self._room -= note
            else:
                line.repeated.clear()

    def _taken(self) -> list[_Line]:
        """Returns the lines with sentences, in the order in which they came into the block."""
        return list({piece.line.record.id: piece.line for piece in self._taken_pieces}.values())

    def lines(self) -> list[str]:
        """Returns the lines, each with its line break, the newest memory first."""
        taken = self._taken() or [line for line in self._lines.values() if line.cut]
        ordered = sorted(taken, key=lambda line: line.record.at, reverse=True)
        return [f"{line.head}{_asked(line.question)}{_text(line)}{_said_again(line)}\n" for line in ordered]


def _speaker(piece: _Piece) -> str | None:
    return speaker_shown(piece.line.record.speaker, piece.line.record.role)


def _text(line: _Line) -> str:
    if line.cut:
        return line.cut
    parts, dates, last = list[str](), set[str](), 0
    for _, piece in sorted(line.chosen.items()):
        begin, end = piece.sentence.span
        if parts:
            # Chinese and Japanese have no space between sentences.
            is_spaced = any(map(str.isspace, line.record.text[last - 1 : begin + 1]))
            parts.append(GAP if line.omits(last, begin) else " " if is_spaced else "")
        parts.append(piece.dated(dates))
        last = end
    return line.ended("".join(parts), last)


def _asked(question: str) -> str:
    return f"[asked: {question}] " if question else ""


def _said_again(line: _Line) -> str:
    """Returns the note of other days on which the same was said."""
    return said_between({*line.repeated, line.day})
