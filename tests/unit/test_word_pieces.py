from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from graphmem.models import minilm
from graphmem.models.loading import read_checked
from graphmem.models.word_pieces import MAX_REMEMBERED_CHARS, WordPieces

VOCABULARY = json.loads(read_checked(*minilm.TOKENIZER_FILE, minilm.TOKENIZER_SHA256, ""))["model"]["vocab"]
PIECES = WordPieces(VOCABULARY)
NAMES = {piece: name for name, piece in VOCABULARY.items()}
# What `tokenizers` 0.23.3 makes of these texts, with the model's own settings.
EXPECTED = {
    "": ([], []),
    " \n ": ([], []),
    "Melanie painted a sunrise.": (["melanie", "painted", "a", "sunrise", "."], [0, 8, 16, 18, 25]),
    "Unaffordably": (["una", "##ff", "##ord", "##ably"], [0, 3, 5, 8]),
    "Ångström café Straße": (["ang", "##strom", "cafe", "st", "##raße"], [0, 3, 9, 14, 16]),
    "don't—“stop” ok?": (["don", "'", "t", "—", "“", "stop", "”", "ok", "?"], [0, 3, 4, 5, 6, 7, 11, 13, 15]),
    "我喜欢北京 タワー": (["我", "[UNK]", "[UNK]", "北", "京", "タ", "##ワ", "##ー"], [0, 1, 2, 3, 4, 6, 7, 8]),
    "한국": (["ᄒ", "##ᅡ", "##ᆫ", "##ᄀ", "##ᅮ", "##ᆨ"], [0, 0, 0, 1, 1, 1]),
    "a\u200bb\x00c\td": (["abc", "d"], [0, 6]),
    "[CLS] x": (["[", "cl", "##s", "]", "x"], [0, 1, 3, 4, 6]),
    "🎉 great": (["[UNK]", "great"], [0, 2]),
    "e\u0301tude": (["et", "##ude"], [0, 3]),
    "ΑΣ İstanbul": (["α", "##σ", "istanbul"], [0, 1, 3]),
    "x" * 100: (["xx", *["##xx"] * 49], [*range(0, 100, 2)]),
    "x" * 101: (["[UNK]"], [0]),
}


@pytest.mark.parametrize("text", EXPECTED)
def test_pieces_and_their_offsets(text: str) -> None:
    ids, offsets = PIECES.encode(text)
    assert ([NAMES[piece] for piece in ids], offsets) == EXPECTED[text]


def test_a_remembered_division_is_that_of_the_first_time() -> None:
    text = "Unaffordably, " * 3 + "unaffordably-" * 9
    assert len(text.rsplit(maxsplit=1)[-1]) > MAX_REMEMBERED_CHARS
    first = WordPieces(VOCABULARY)
    assert first.encode(text) == first.encode(text) == PIECES.encode(text)


def test_threads_share_a_vocabulary() -> None:
    texts = [f"Number {number} of {word}" for number in range(50) for word in ("harbour", "Straße", "北京")]
    shared = WordPieces(VOCABULARY)
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(shared.encode, texts)) == [PIECES.encode(text) for text in texts]
