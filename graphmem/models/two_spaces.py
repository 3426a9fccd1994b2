"""A MultilingualEmbedder of two models: one for the texts that it reads, one for all; and which texts MiniLM reads."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol, TypeVar

import numpy as np

from graphmem.concurrency import Pool
from graphmem.errors import StoreUnavailable
from graphmem.models.loading import PerProcess
from graphmem.models.minilm import MiniLM
from graphmem.models.use_multilingual import UseMultilingual
from graphmem.plugins import Embedded, EmbeddedQuestion, LocatingEmbedder, Matrix
from graphmem.text import STOP_WORDS, script_of

T = TypeVar("T")


class SentenceEncoder(Protocol):
    """Turns texts of several languages into unit vectors of one space. `model` names the model and its revision."""

    @property
    def model(self) -> str: ...

    @property
    def dims(self) -> int: ...

    def encode(self, texts: Sequence[str]) -> Matrix:
        """Returns a matrix (texts x dims, float32, unit rows); a row does not depend on the other texts.

        Raises EmbeddingError.
        """
        ...

    def ranking_vector(self, vector: Matrix) -> Matrix:
        """Returns the unit vector whose cosines with vectors of texts rank them for a question with this vector.

        Raises EmbeddingError.
        """
        ...


class TwoSpaceEmbedder:
    """Embeds every text in the multilingual space, and those for which `reads` returns True with `own` as well."""

    def __init__(self, own: LocatingEmbedder, multilingual: SentenceEncoder, reads: Callable[[str], bool]) -> None:
        self._own = own
        self._multilingual = multilingual
        self._reads = reads
        self.model, self.dims = own.model, own.dims
        self.token_form, self.token_dims = own.token_form, own.token_dims
        self.multilingual_form, self.multilingual_dims = multilingual.model, multilingual.dims

    def embed(self, texts: Sequence[str]) -> list[Matrix]:
        """Returns the vectors of the first model, of texts that it does not read as well."""
        return self._own.embed(texts)

    def embed_query(self, text: str) -> Matrix:
        """Returns a question's vector of the first model."""
        return self._own.embed_query(text)

    def embed_tokens(self, texts: Sequence[str]) -> list[Embedded]:
        if not texts:
            return []
        encode = _begin(partial(self._multilingual.encode, texts))
        read = [text for text in texts if self._reads(text)]
        own = dict(zip(read, self._own.embed_tokens(read), strict=True))
        unread = Embedded(np.empty((0, self.dims), np.float32), ())
        return [
            Embedded((embedded := own.get(text, unread)).vectors, embedded.tokens, vector)
            for text, vector in zip(texts, encode(), strict=True)
        ]

    def embed_question(self, text: str) -> EmbeddedQuestion:
        if not self._reads(text):
            vector, ranking = self._read_multilingual(text)
            return EmbeddedQuestion(None, np.empty((0, self.token_dims), np.float32), (), vector, ranking)
        read_multilingual = _begin(partial(self._read_multilingual, text))
        own = self._own.embed_question(text)
        vector, ranking = read_multilingual()
        return EmbeddedQuestion(own.vector, own.tokens, own.words, vector, ranking)

    def _read_multilingual(self, text: str) -> tuple[Matrix, Matrix]:
        """Returns a question's vector, and the one that ranks texts for it."""
        vector = self._multilingual.encode([text])[0]
        return vector, self._multilingual.ranking_vector(vector)

    def token_places(self, text: str) -> Sequence[Sequence[int]]:
        return self._own.token_places(text)


# Both models read at the same time, so that a search and an addition wait for the slower one only. More threads than
# cores would read no faster.
_readers = PerProcess(lambda: Pool(os.cpu_count() or 1, "graphmem-reader"))


def _begin(read: Callable[[], T]) -> Callable[[], T]:
    """Begins to read in a thread, and returns what waits for the result: `read` itself if no thread can be started."""
    try:
        return _readers.get().submit(read).result
    except StoreUnavailable:
        return read


# --- which texts MiniLM reads; the multilingual encoder reads them all ----------------------------------------------

# MiniLM divides words of other languages than English into smaller pieces than the multilingual vocabulary does.
# Medians of this ratio: English .94 to 1, Spanish 1.3, German 1.5. Above this value are 97 % of everyday sentences in
# German, 84 % in Spanish, 1.5 % in English; .7 % of LOCOMO's questions, .05 % of its turns, .3 % of MuSiQue's passages.
MAX_PIECE_RATIO = 1.12
# The multilingual vocabulary has more numbers as one piece. With their digits, 1 % of MuSiQue's passages were above it.
_DIGIT = re.compile(r"\d")

# Words that grammar needs, in the other languages in Latin script that the multilingual encoder reads. Short sentences
# in French and Spanish are divided into few pieces, as much of their vocabulary is English as well: of 132 everyday
# ones 31 in French, 19 in Spanish and 4 in German were called read by their pieces alone; with these words 1, 7 and 1.
# They call none of LOCOMO's turns and questions, of MuSiQue's passages and of our English chats unread.
_FUNCTION_WORDS = {
    "de": """
        ich du er sie es wir ihr mich mir dich dir ihm ihn ihnen uns euch mein meine meinen meinem meiner dein
        deine sein seine ihre unser unsere der das den dem des ein eine einen einem einer eines kein keine
        keinen und oder aber dass weil wenn als ob nicht noch schon auch nur sehr ist sind war waren bin bist
        hat habe haben hatte wird werden wurde kann muss will mit von zu zum zur im am auf aus bei für nach
        vor über unter um durch wie wer wo wann warum welche welcher welches welchem
    """,
    "es": """
        yo tú él ella nosotros ellos ellas mi mis tu tus su sus nuestro nuestra el la los las un una unos unas
        lo le les se que qué quién cuál cuáles cuándo dónde cómo cuánto cuánta cuántos por para con sin sobre
        desde hasta entre del al de en y o pero porque si cuando como muy más también es son era fue ser estar
        está estoy están he ha han hemos tengo tiene hay este esta estos estas eso esa ese
    """,
    "fr": """
        je tu il elle nous vous ils elles moi toi lui leur leurs mon ma mes ton ta tes sa ses notre nos votre
        vos le la les un une des du au aux de et ou où mais donc que qui quoi quel quelle quels quelles quand
        comment pourquoi combien est sont était être suis ai avons avez ont été dans sur sous avec sans pour
        par chez vers entre ce cet cette ces se ne pas plus très aussi déjà y en qu j
    """,
    "it": """
        io tu lui lei noi voi loro mi ti ci vi si mio mia miei mie suo sua il lo la gli le un uno una di del
        della dei delle da dal in nel nella con su per tra fra e o ma che chi cosa quale quando dove come
        perché quanto è sono era ho hai ha hanno abbiamo non più anche già molto questo questa
    """,
    "nl": """
        ik jij je hij zij wij jullie mij mijn jouw zijn haar ons onze de het een en of maar dat die deze dit
        wie wat waar wanneer waarom hoe welke is was waren ben heb heeft hebben had wordt worden kan moet wil
        met van naar voor op uit bij onder tussen niet geen ook nog al er zeer te
    """,
    "pl": """
        ja ty on ona my wy oni mnie mi mój moja moje jego jej nasz nasza i oraz lub ale że który która które
        co kto gdzie kiedy dlaczego jak ile jest są był była było być mam ma mają w we na do z ze od dla po
        przy przez nad pod o nie tak już też bardzo się ten ta to tego
    """,
    "pt": """
        eu tu ele ela nós eles elas meu minha meus minhas seu sua o os um uma uns umas de do da dos das no na
        nos nas por para com sem sobre entre e ou mas que quem qual quando onde como porque quanto é são era
        foi ser estar está estou tenho tem não mais muito também já este esta isso
    """,
    "tr": """
        ben sen biz siz onlar benim senin onun bizim bana beni bir bu şu ve veya ama çünkü ki ne kim nerede
        zaman neden nasıl hangi kaç için ile gibi kadar sonra önce değil var yok çok daha da de mi mı mu mü
    """,
}
_OTHER_WORDS = frozenset(" ".join(_FUNCTION_WORDS.values()).split()) - STOP_WORDS
# Names are full of such words ("Los Angeles", "van Gogh"): words in capitals do not count, and one alone says nothing.
MIN_OTHER_WORDS = 2
_WORD = re.compile(r"[^\W\d_]+")


def minilm_reads(text: str) -> bool:
    """Tells whether MiniLM reads a text: it is in Latin script and, by its words, in English. Raises EmbeddingError.

    A text without letters counts as read.
    """
    if script_of(text) is not None:
        return False
    words = _WORD.findall(text)
    # Function words of other languages, and words with letters beyond ASCII.
    others = [word for word in words if word.islower() and (word in _OTHER_WORDS or not word.isascii())]
    if len(set(others)) >= MIN_OTHER_WORDS and len(others) > sum(word.lower() in STOP_WORDS for word in words):
        return False
    letters = _DIGIT.sub(" ", text)
    return MiniLM().count_pieces(letters) <= MAX_PIECE_RATIO * UseMultilingual().count_pieces(letters)
