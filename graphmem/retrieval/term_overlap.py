"""What a memory shares with a question, in any script: words, each by how rare it is. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from graphmem.retrieval.character_matching import PARTIAL_WEIGHT, stem_prefix
from graphmem.text import idf, is_unspaced, query_tokens, term_id, tokens

# The figures of `benchmarks/ABLATIONS.md`, "Enough".
#
# The cosine, by the default embedder, at which a question has found what it is about, and the one below which a memory
# has nothing to do with it. Both only where the embedder reads the question's language.
MIN_SIMILARITY, MIN_SIMILARITY_WITH_TERMS = 0.5, 0.35
# The words, as a part of what a word of one memory alone is worth, that the best memory has to share: of a question
# that cosines tell nothing about, and of one that they tell more about than words do.
MIN_OVERLAP, MIN_OVERLAP_UNSUPPORTED = 0.7, 1.4

# Words that weak questions and clear ones alike have, and that name nothing: times counted from now, what one thinks
# and says, and stand-ins for things.
_EMPTY = """
today yesterday tomorrow tonight now lately recently last next first time times day days ago back end thing things
something anything everything someone anyone know think thought feel remember mean tell told say said talk talked see
look suggest recommend advise mention ask answer want get got go going went gone come came make made happen happened
turn work help need good better best way lot really please sure new different change changed else maybe
今天 昨天 明天 现在 刚才 最近 上次 下次 这次 那次 以前 之前 以后 之后 后来 最后 当时 平时 有时 时间 地方
记得 觉得 感觉 知道 认为 以为 希望 打算 告诉 提到 说过 讲过 喜欢 事情 东西 问题 结果 情况 样子 意思 办法
可以 应该 需要 能够 可能 还是 已经 真的 其实 一样 一起 一下 一点 变化 解决 处理 成功 开始
現在 剛才 最近 這次 以後 之後 後來 最後 當時 平時 有時 時間 記得 覺得 感覺 認為 以為 告訴 說過 講過 喜歡 東西 問題
結果 情況 樣子 辦法 應該 還是 已經 其實 一樣 一點 變化 解決 處理 開始
"""
_EMPTY_WORDS = frozenset(token for word in _EMPTY.split() for token in tokens(word))


@dataclass(frozen=True, slots=True)
class WeightedTerms:
    """A question's words that name something; `weights` by word, where a word of one memory alone weighs 1.

    `inflected`: other forms of a word count in part. In a language that the embedder reads cosines tell of these.
    """

    weights: Mapping[str, float] = field(default_factory=dict)
    inflected: bool = False

    def overlap(self, texts: Iterable[str]) -> float:
        """The weight of the words that these texts have."""
        held = {word for text in texts for word in tokens(text)}
        return sum(weight * self._held(word, held) for word, weight in self.weights.items())

    def _held(self, word: str, held: Collection[str]) -> float:
        if word in held:
            return 1.0
        begun = stem_prefix(word) if self.inflected and not is_unspaced(word) else ""
        return PARTIAL_WEIGHT if begun and any(other.startswith(begun) for other in held) else 0.0


def query_words(question: str) -> list[str]:
    """The words that count, each once."""
    return [word for word in query_tokens(question) if word not in _EMPTY_WORDS]


def weigh_terms(words: Iterable[str], size: int, frequencies: Mapping[int, int], *, inflected: bool) -> WeightedTerms:
    """The words with their weights, in a partition of `size` memories of which `frequencies` hold each term."""
    most = idf(max(size, 1), 1)
    return WeightedTerms({word: idf(size, frequencies.get(term_id(word), 0)) / most for word in words}, inflected)


def is_relevant(shared: float, similarity: float, *, understood: bool) -> bool:
    """Whether a memory that shares such a weight of words, and is that near, is what a question is about.

    `understood`: whether the embedder reads the question's language.
    """
    if understood:
        return similarity >= MIN_SIMILARITY or shared >= MIN_OVERLAP_UNSUPPORTED
    return shared >= MIN_OVERLAP
