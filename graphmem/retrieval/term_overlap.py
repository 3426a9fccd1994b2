"""Overlap of a memory and a query in words that name something, weighted by rarity; in any script. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from graphmem.extraction.language_detection import is_german
from graphmem.retrieval.matching import PARTIAL_WEIGHT
from graphmem.retrieval.word_forms import forms_of, is_form
from graphmem.text import bare_terms, idf, is_unspaced, query_tokens, term_id, tokens, tokens_with_and_without_marks

# The least letters of a word that is found as the end of a German compound (Karte in Krankenversicherungskarte), and of
# what stands before it. A compound is a capitalised word in German text: in English "art" is no end of "heart".
MIN_COMPOUND_END, MIN_COMPOUND_START = 4, 3
_CAPITALISED = re.compile(rf"\b[^\W\d_a-z]\w{{{MIN_COMPOUND_START + MIN_COMPOUND_END - 1},}}")

# Words that name nothing in particular, in weak and clear queries alike: relative times, verbs of thinking and saying,
# stand-ins for things.
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
# Those of them that are written without spaces.
EMPTY_UNSPACED_WORDS = tuple(word for word in _EMPTY.split() if is_unspaced(word))


@dataclass(frozen=True, slots=True)
class WeightedTerms:
    """A query's words that name something, with their weights; a word that one memory alone has weighs 1.

    A word that differs in marks of Latin letters only, and a German compound that ends with the word, count
    `PARTIAL_WEIGHT`. Other forms of a word (`word_forms`) do so too in the texts that are `inflected`. Not needed where
    the embedder reads the text: cosines cover inflection there.
    """

    weights: Mapping[str, float] = field(default_factory=dict)
    inflected: Callable[[str], bool] = lambda _: False

    def overlap(self, texts: Iterable[str]) -> float:
        """Returns the summed weight of the words that occur in any of these texts."""
        words, bare_words, forms, compounds = set[str](), set[str](), set[str](), set[str]()
        for text in texts:
            terms, bare = tokens_with_and_without_marks(text)
            words.update(terms)
            bare_words.update(bare)
            if self.inflected(text):
                forms |= forms_of({*terms, *bare})
            # Long and capitalised words of a German text may be compounds.
            long_words = _CAPITALISED.findall(text)
            if long_words and is_german(text):
                compounds.update(*tokens_with_and_without_marks(" ".join(long_words)))

        def occurrence(word: str) -> float:
            if word in words:
                return 1.0
            if is_unspaced(word):
                return 0.0
            occurs_otherwise = (
                not bare_words.isdisjoint(bare_terms(word))
                or is_form(word, forms)
                or any(
                    MIN_COMPOUND_END <= len(term) <= len(compound) - MIN_COMPOUND_START and compound.endswith(term)
                    for compound in compounds
                    for term in (word, *bare_terms(word))
                )
            )
            return PARTIAL_WEIGHT if occurs_otherwise else 0.0

        return sum(weight * occurrence(word) for word, weight in self.weights.items())


def query_words(query: str) -> list[str]:
    """Returns the query's distinct terms that name something (see `text.query_tokens`), in order."""
    return [word for word in query_tokens(query) if word not in _EMPTY_WORDS]


def weigh_terms(
    words: Iterable[str], size: int, frequencies: Mapping[int, int], inflected: Callable[[str], bool]
) -> WeightedTerms:
    """Weighs words by their idf in a partition of `size` memories, divided by the idf of a word in one memory.

    `frequencies` has document frequencies by term id.
    """
    greatest = idf(max(size, 1), 1)
    return WeightedTerms({word: idf(size, frequencies.get(term_id(word), 0)) / greatest for word in words}, inflected)
