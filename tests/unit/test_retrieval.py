"""The parts of retrieval that need no store: PageRank, features, scoring, second hop, the context block."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from math import log
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphmem.model import (
    ASSISTANT,
    AnswerType,
    CandidateRow,
    MentionEdge,
    MentionKind,
    Subgraph,
    micros,
)
from graphmem.retrieval import features, graph_walk, matching, pagerank, passages, scoring
from graphmem.retrieval.pagerank import personalized_pagerank, rarity
from graphmem.retrieval.query_analysis import analyze_query
from graphmem.retrieval.weights import CONFIGURATIONS
from graphmem.text import term_counts, term_id

SIZE = 100


def graph(mentions: dict[str, list[str]], df: dict[str, int], pairs: tuple[tuple[str, str], ...] = ()) -> Subgraph:
    return Subgraph(
        memories=tuple(mentions),
        frequencies=df,
        mentions=tuple(MentionEdge(uid, key, MentionKind.NAME) for uid, keys in mentions.items() for key in keys),
        next_pairs=pairs,
    )


def test_rarity_is_greatest_for_an_entity_of_one_memory_and_zero_for_a_hub() -> None:
    assert rarity(SIZE, 1) == 1.0
    assert rarity(SIZE, 10) == pytest.approx(0.5)
    assert rarity(SIZE, 15) == 0.0
    assert rarity(6, 3) == pytest.approx(log(2) / log(6))
    assert rarity(6, 4) == 0.0
    assert rarity(1, 1) == 0.0
    assert rarity(0, 0) == 0.0


def test_pagerank_reaches_memories_over_a_shared_entity_and_gives_the_path() -> None:
    result = personalized_pagerank(
        graph(
            {"m1": ["tom", "anna"], "m2": ["anna", "bergen"], "m3": ["paris"]},
            {"tom": 2, "anna": 2, "bergen": 2, "paris": 2},
        ),
        SIZE,
        {},
        {"tom": 1.0},
    )
    assert result.scores["m1"] == 1.0
    assert 0 < result.scores["m2"] < result.scores["m1"]
    assert result.scores["m3"] == 0.0
    assert result.path("m2") == [("entity", "tom"), ("memory", "m1"), ("entity", "anna"), ("memory", "m2")]
    assert result.path("m3") in ([], [("memory", "m3")])


def test_a_memory_with_many_mentions_gets_a_lower_score(monkeypatch: pytest.MonkeyPatch) -> None:
    more = [f"n{n}" for n in range(20)]
    mentions = {"first": ["tom", "anna", "bergen"], "long": ["anna", *more], "short": ["bergen"], "other": more}

    def measure_gap() -> float:
        df = {"tom": 2, "anna": 2, "bergen": 2} | dict.fromkeys(more, 2)
        scores = personalized_pagerank(graph(mentions, df), SIZE, {}, {"tom": 1.0}).scores
        return scores["short"] - scores["long"]

    gap = measure_gap()
    monkeypatch.setattr("graphmem.retrieval.pagerank.OUT_WEIGHT_POWER", 0.0)
    assert gap > measure_gap()


def test_a_hub_leads_nowhere() -> None:
    result = personalized_pagerank(graph({"m1": ["tom"], "m2": ["tom"]}, {"tom": 60}), SIZE, {"m1": 1.0}, {})
    assert result.scores["m2"] == 0.0


def test_the_order_of_a_session_is_walked_both_ways() -> None:
    subgraph = graph({"m1": [], "m2": [], "m3": []}, {}, (("m1", "m2"), ("m2", "m3")))
    result = personalized_pagerank(subgraph, SIZE, {"m2": 1.0}, {}, ["m2"])
    assert result.scores["m1"] == pytest.approx(result.scores["m3"])
    assert result.scores["m1"] > 0
    assert result.path("m3") == [("memory", "m2"), ("memory", "m3")]


def test_an_entity_passes_score_to_memories_outside_the_neighbourhood() -> None:
    """The more mentions an entity has outside the neighbourhood, the less score it passes on inside."""
    narrow = personalized_pagerank(graph({"m1": ["a"], "m2": ["a"]}, {"a": 2}), SIZE, {"m1": 1.0}, {})
    wide = personalized_pagerank(graph({"m1": ["a"], "m2": ["a"]}, {"a": 10}), SIZE, {"m1": 1.0}, {})
    assert wide.scores["m2"] < narrow.scores["m2"]


def test_without_seeds_in_the_graph_nothing_is_reached() -> None:
    assert personalized_pagerank(graph({"m1": ["a"]}, {"a": 1}), SIZE, {}, {}).scores == {}
    assert personalized_pagerank(Subgraph(), 0, {"m1": 1.0}, {"a": 1.0}).scores == {}


def test_entities_of_one_memory_pass_their_share_back_to_it() -> None:
    """Counting these mentions for each memory gives the same scores as a node for each entity."""
    mentions = {"m1": ["a", "x", "y"], "m2": ["a", "b"], "m3": ["b", "z"]}
    whole = graph(mentions, {"a": 2, "b": 2, "x": 1, "y": 1, "z": 1}, (("m1", "m3"),))
    shared = graph({uid: [key for key in keys if key in "ab"] for uid, keys in mentions.items()}, {"a": 2, "b": 2})
    folded = replace(
        shared, unshared_mentions={("m1", MentionKind.NAME): 2, ("m3", MentionKind.NAME): 1}, next_pairs=(("m1", "m3"),)
    )
    for seeds in ({"m1": 1.0}, {"m2": 0.5, "m3": 0.5}):
        assert personalized_pagerank(folded, SIZE, seeds, {"a": 0.4}).scores == pytest.approx(
            personalized_pagerank(whole, SIZE, seeds, {"a": 0.4}).scores
        )


@st.composite
def whole_graphs(draw: st.DrawFn) -> tuple[dict[str, list[str]], tuple[tuple[str, str], ...]]:
    """Draws which entities each memory mentions, and which memories follow each other."""
    memories = [f"m{number}" for number in range(draw(st.integers(1, 6)))]
    keys = st.lists(st.sampled_from("abcdef"), unique=True)
    order = draw(st.permutations(memories))
    pairs = [pair for pair in pairwise(order) if draw(st.booleans())]
    return {uid: draw(keys) for uid in memories}, tuple(pairs)


@given(whole_graphs(), st.data())
@settings(max_examples=60, deadline=None)
def test_scores_and_paths_are_those_of_networkx(
    drawn: tuple[dict[str, list[str]], tuple[tuple[str, str], ...]], data: st.DataObject
) -> None:
    mentions, pairs = drawn
    df = Counter(key for keys in mentions.values() for key in keys)
    # Mentions outside the subgraph: networkx gets a node to which all that leaves the subgraph goes, for good.
    df += Counter({key: data.draw(st.integers(0, 3)) for key in df})
    memory_seeds = data.draw(st.dictionaries(st.sampled_from(list(mentions)), st.floats(0.1, 1.0), min_size=1))
    entity_seeds = data.draw(st.dictionaries(st.sampled_from(sorted(df)), st.floats(0.1, 1.0))) if df else {}
    full = nx.DiGraph()
    full.add_nodes_from([*(("memory", uid) for uid in mentions), *(("entity", key) for key in df)])
    for uid, key in ((uid, key) for uid, keys in mentions.items() for key in keys):
        if weight := rarity(SIZE, df[key]):
            full.add_edge(("memory", uid), ("entity", key), weight=weight)
            full.add_edge(("entity", key), ("memory", uid), weight=weight)
    for key in df:
        outside = df[key] - sum(key in keys for keys in mentions.values())
        if outside and rarity(SIZE, df[key]):
            full.add_edge(("entity", key), "outside", weight=outside * rarity(SIZE, df[key]))
    for before, after in pairs:
        full.add_edge(("memory", before), ("memory", after), weight=pagerank.NEXT_WEIGHT)
        full.add_edge(("memory", after), ("memory", before), weight=pagerank.NEXT_WEIGHT)
    full.add_node("outside")

    result = personalized_pagerank(graph(mentions, dict(df), pairs), SIZE, memory_seeds, entity_seeds, [*memory_seeds])

    nodes = list(full)
    seeds = {("memory", uid): share for uid, share in memory_seeds.items()}
    seeds |= {("entity", key): share for key, share in entity_seeds.items()}
    step = nx.google_matrix(full, 1 - pagerank.RESTART_PROBABILITY, seeds, nodes, dangling={"outside": 1.0})
    shares = np.array([seeds.get(node, 0.0) for node in nodes]) / sum(seeds.values())
    probabilities = shares @ np.linalg.matrix_power(step, pagerank.ITERATIONS)
    weights = np.array([full.out_degree(node, weight="weight") for node in nodes])
    divided = probabilities / np.maximum(weights, pagerank.MIN_OUT_WEIGHT) ** pagerank.OUT_WEIGHT_POWER
    reached = {uid: value for (_, uid), value in zip(nodes[: len(mentions)], divided[: len(mentions)], strict=True)}
    scaled = {uid: log(value / max(reached.values()) + 0.001) - log(0.001) for uid, value in reached.items()}
    assert result.scores == pytest.approx({uid: value / max(scaled.values()) for uid, value in scaled.items()})

    for source, target, edge in full.edges(data=True):
        edge["length"] = -log(min(edge["weight"] / full.out_degree(source, weight="weight"), 1 - 1e-9))
    distances = nx.multi_source_dijkstra_path_length(full, set(seeds), weight="length")
    for uid in mentions:
        path = result.path(uid)
        assert path[-1] == ("memory", uid)
        if ("memory", uid) in distances:
            assert path[0] in seeds
            length = sum(full.edges[edge]["length"] for edge in pairwise(path))
            assert length == pytest.approx(distances[("memory", uid)])
        else:
            assert path == [("memory", uid)]


def test_columns_are_normalised_to_zero_to_one() -> None:
    assert features.min_max_normalized(np.array([0.2, 0.6, 0.0])) == pytest.approx([1 / 3, 1.0, 0.0])
    assert features.min_max_normalized(np.full(3, 0.7)).tolist() == [0.0, 0.0, 0.0]
    assert features.min_max_normalized(np.array([])).tolist() == []


def test_a_sum_ignores_weights_without_a_column() -> None:
    table = features.FeatureTable(("a", "b")).with_column("graph", {"a": 0.9})
    assert table.total({"graph": 2.0, "tokens": 5.0}).tolist() == [1.8, 0.0]


def candidate_row(
    row: int, speaker: str | None = None, at: datetime = datetime(2024, 3, 1, tzinfo=UTC), **more: Any
) -> CandidateRow:
    return CandidateRow(
        row, f"m{row}", "user:u", speaker, micros(at), more.get("answer_types", 0), more.get("question_share", 0.0),
        None, None, role=more.get("role"),
    )  # fmt: skip


def make_evidence(*rows: CandidateRow, **more: Any) -> features.Evidence:
    chain = [None, *(row.id for row in rows), None]
    beside = {row.id: (chain[i], chain[i + 2]) for i, row in enumerate(rows)}
    said = frozenset(row.id for row in rows if row.role == ASSISTANT)
    return features.Evidence({row.id: row for row in rows}, beside, by_assistant=said, **more)


def columns(evidence: features.Evidence, question: str = "what?") -> dict[str, list[float]]:
    table = evidence.table(list(evidence.rows), analyze_query(question, datetime(2024, 3, 20, tzinfo=UTC)))
    return {name: column.tolist() for name, column in table.columns.items()}


def test_rows_are_in_the_order_of_storing_whatever_their_ids() -> None:
    evidence = make_evidence(candidate_row(3), candidate_row(1), candidate_row(2))
    assert evidence.table(["m3", "m2", "m1"], analyze_query("what?", datetime(2024, 3, 20, tzinfo=UTC))).ids == (
        "m1",
        "m2",
        "m3",
    )


def test_a_neighbours_score_counts_in_part() -> None:
    evidence = make_evidence(
        candidate_row(1), candidate_row(2), candidate_row(3), similarity={"m1": 1.0, "m3": 0.5}, keyword={"m1": 2.0}
    )
    values = columns(evidence)
    assert values["dense"] == pytest.approx([1.0, 0.0, 0.5])
    averaged = np.array([1 / 1.7, 0.7 * 1.5 / 2.4, 0.5 / 1.7])
    assert values["dense_beside"] == pytest.approx(features.min_max_normalized(averaged).tolist())
    assert values["keyword_beside"] == pytest.approx([1.0, 0.7, 0.0])


def test_the_speaker_counts_only_when_one_is_named() -> None:
    evidence = make_evidence(candidate_row(1, "Anna Berg"), candidate_row(2, "Tom"), candidate_row(3))
    assert columns(evidence, "what did ANNA say?")["speaker"] == [1.0, 0.0, 0.0]
    assert columns(evidence, "did Anna meet Tom?")["speaker"] == [0.0, 0.0, 0.0]
    assert columns(evidence, "who was there?")["speaker"] == [0.0, 0.0, 0.0]


def test_a_memory_with_the_answer_type_of_the_query_counts() -> None:
    evidence = make_evidence(
        candidate_row(1, answer_types=AnswerType.PLACE | AnswerType.WHEN),
        candidate_row(2, answer_types=AnswerType.PERSON),
        candidate_row(3),
    )
    assert columns(evidence, "Where was it?")["type"] == [1.0, 0.0, 0.0]
    assert columns(evidence, "Who was there?")["type"] == [0.0, 1.0, 0.0]
    assert columns(evidence, "How long did it take?")["type"] == [0.0, 0.0, 0.0]
    assert columns(evidence, "Tell me.")["type"] == [0.0, 0.0, 0.0]


def test_a_month_in_the_query_counts() -> None:
    days = [datetime(2024, 3, 1, tzinfo=UTC), datetime(2024, 5, 7, tzinfo=UTC), datetime(2023, 5, 9, tzinfo=UTC)]
    evidence = make_evidence(*(candidate_row(row, at=day) for row, day in enumerate(days, 1)))
    assert columns(evidence, "What happened in May?")["date"] == [0.0, 1.0, 1.0]
    assert columns(evidence, "What happened in May 2023?")["date"] == [0.0, 0.0, 1.0]
    assert columns(evidence, "What may happen?")["date"] == [0.0, 0.0, 0.0]


def two_tokens() -> matching.TokenMatches:
    """Matches for a query of two tokens with equal weight, each along a dimension of its own."""
    return matching.TokenMatches(np.array([0.5, 0.5]), query_tokens=np.eye(2, dtype=np.float32))


def test_a_request_to_an_assistant_is_no_question_to_people() -> None:
    """Such a message often states facts and ends with "can you help?" in the same sentence."""
    evidence = make_evidence(candidate_row(1, question_share=1.0, role="user"), candidate_row(2, role="assistant"))
    assert columns(evidence)["question_share"] == [0.0, 0.0]
    evidence = make_evidence(
        candidate_row(1, "Anna", question_share=1.0, role="user"), candidate_row(2, "Tom", role="user")
    )
    assert columns(evidence)["question_share"] == [1.0, 0.0]


@pytest.mark.parametrize(
    ("question", "wanted"),
    [
        ("What did you recommend for the balcony?", True),
        ("Which of your three titles had a number in it?", True),
        ("你推荐的那家客栈叫什么?", True),
        ("Can you tell me what my sister plays?", False),
        ("Do you know where I parked?", False),
        ("请你告诉我妹妹弹什么?", False),
        ("What did Youssef say?", False),
        ("What did the assistant recommend?", True),
        ("Was hast du mir empfohlen?", True),
        ("Что ты мне посоветовал?", True),
        ("What did I tell you about my sister?", False),
        ("我跟你说过我妹妹的事吗?", False),
        ("What have I planted?", False),
    ],
)
def test_you_in_a_query_means_the_assistant(question: str, wanted: bool) -> None:
    values = columns(make_evidence(candidate_row(1, role="user"), candidate_row(2, role="assistant")), question)
    assert values["unasked"] == [0.0, float(not wanted)]


@pytest.mark.parametrize(
    ("question", "wanted"),
    [
        ("Which wine did you recommend?", True),
        ("What did you tell me about the visa?", True),
        ("You suggested a film, which one?", True),
        ("Which of your three suggestions was the cheapest?", True),
        ("Which wine was recommended by you?", True),
        ("What did the assistant say about sleep?", True),
        ("你推荐的那家客栈叫什么?", True),
        ("您說過哪家醫院最好？", True),
        ("Was hast du mir empfohlen?", True),
        ("Que m'as-tu conseillé ?", True),
        ("Что ты мне посоветовал?", True),
        ("Can you recommend a wine?", False),
        ("Which wine would you recommend?", False),
        ("What did I tell you about my sister?", False),
        ("What did my sister recommend to you?", False),
        ("Was habe ich dir gesagt?", False),
        ("Which engine drives your spacecraft?", False),
        ("请你推荐一本书", False),
        ("你能推荐一本书吗", False),
        ("我跟你说过我妹妹的事吗?", False),
    ],
)
def test_a_query_for_what_the_assistant_said_is_recognised(question: str, wanted: bool) -> None:
    assert analyze_query(question, datetime.now(UTC)).asks_assistant_said is wanted


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("Where is it?", True),
        ("where is my key", True),
        ("What's my sister's name", True),
        ("你喜欢什么", True),
        ("The key?", True),
        ("أين أسكن؟", True),
        ("tea in Oslo", False),
        ("I know where it is.", False),
        ("我海鲜过敏", False),
    ],
)
def test_a_question_is_recognised_without_a_question_mark(text: str, wanted: bool) -> None:
    assert analyze_query(text, datetime.now(UTC)).is_question is wanted


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("gate code", True),
        ("Wałęsa", True),
        ("门禁密码", True),
        ("红色 自行车", True),
        ("Where is it?", False),
        ("Flip a coin.", False),
        ("Good night!", False),
        ("写一封礼貌的投诉信。", False),
        ("谢谢，太好了。", False),
        ("物业的钱我交到啥时候了", False),
        ("ما موضوع كتابي؟", False),
    ],
)
def test_a_few_words_that_are_no_sentence_are_keywords(text: str, wanted: bool) -> None:
    assert analyze_query(text, datetime.now(UTC)).is_keywords is wanted


def test_unasked_is_zero_if_all_messages_are_the_assistants() -> None:
    evidence = make_evidence(candidate_row(1, role="assistant"), candidate_row(2, role="assistant"))
    assert columns(evidence)["unasked"] == [0.0, 0.0]


def test_every_weight_is_of_a_feature() -> None:
    evidence = make_evidence(
        candidate_row(1), candidate_row(2), matches=token_matches(m1=[1.0, 0.0]), keyword={"m1": 1.0}
    )
    feature_names = {*columns(evidence), "graph", "hop", "named", "alike"}
    for name, configuration in CONFIGURATIONS.items():
        for weights in (
            configuration.candidates,
            configuration.seeds,
            configuration.final,
            configuration.seeds_without_tokens,
            configuration.final_without_tokens,
        ):
            assert weights.keys() <= feature_names, name


def test_cosines_of_an_unsupported_script_are_no_features() -> None:
    rows = candidate_row(1), candidate_row(2)
    values = columns(make_evidence(*rows, similarity={"m1": 0.9}, keyword={"m2": 1.0}, compares_vectors=False))
    assert not values.keys() & {"dense", "dense_beside"}
    assert values["keyword"] == [0.0, 1.0]


def token_matches(**rows: list[float]) -> matching.TokenMatches:
    matches = two_tokens()
    windows = [np.array([round(x * 127) for x in row], dtype=np.int8).tobytes() for row in rows.values()]
    return matches.with_windows(list(rows), windows)


def test_tokens_are_matched_by_the_nearest_and_squared() -> None:
    matches = two_tokens()
    windows = [np.array(tokens, dtype=np.int8).tobytes() for tokens in ([[127, 0], [-127, 64]], [[0, 127]], [])]
    matches.with_windows(["a", "a", "b"], windows)
    assert not matches.contains("a")  # matches never change
    matches = matches.with_windows(["a", "a", "b"], windows)
    assert matches.row("a") == pytest.approx([1.0, 1.0])
    assert matches.row("nobody").tolist() == [0.0, 0.0]
    assert matches.contains("a")
    assert not matches.contains("b")
    assert not matches.contains("nobody")


def test_matches_of_a_long_text_count_less() -> None:
    matches = two_tokens()
    token = np.array([[127, 0]], dtype=np.int8)
    for length in (1, matching.LONG_TOKENS, 4 * matching.LONG_TOKENS):
        matches = matches.with_windows([str(length)], [np.repeat(token, length, axis=0).tobytes()])
    rows = [matches.row(str(length))[0] for length in (1, matching.LONG_TOKENS, 4 * matching.LONG_TOKENS)]
    assert rows == pytest.approx([1.0, 1.0, 1 / (1 + 2 * matching.LENGTH_EXPONENT)])


def test_rare_words_weigh_more_and_stop_words_least() -> None:
    frequencies = {term_id("rare"): 1, term_id("common"): 50}
    rare, common, stop = matching.token_weights(("rare", "common", "the"), SIZE, frequencies)
    assert rare > common > stop > 0
    assert rare + common + stop == pytest.approx(1.0)
    assert rare / stop == pytest.approx(log(1 + 100 / 2) / log(1 + 100 / 101))


def test_a_neighbours_words_count_less_than_ones_own() -> None:
    evidence = make_evidence(
        candidate_row(1), candidate_row(2), candidate_row(3), matches=token_matches(m1=[1.0, 0.0], m2=[0.0, 1.0])
    )
    values = columns(evidence)
    assert values["tokens"] == pytest.approx([1.0, 1.0, 0.0])
    both, beside = 0.5 + 0.5 * 0.7225, 0.5 * 0.7225
    assert values["tokens_beside"] == pytest.approx(
        features.min_max_normalized(np.array([both, both, beside])).tolist()
    )


def test_a_reply_gets_the_score_of_the_question_before_it() -> None:
    question = candidate_row(1, "Tom", answer_types=AnswerType.ASKS)
    matches = token_matches(m1=[1.0, 1.0], m2=[0.0, 0.0])
    assert columns(make_evidence(question, candidate_row(2, "Anna"), matches=matches))["reply"] == [0.0, 1.0]
    assert columns(make_evidence(question, candidate_row(2, "Tom"), matches=matches))["reply"] == [0.0, 0.0]
    statements = make_evidence(candidate_row(1, "Tom"), candidate_row(2, "Anna"), matches=matches)
    assert columns(statements)["reply"] == [0.0, 0.0]


def test_the_second_hop_prefers_memories_with_other_matches() -> None:
    mentions = {"m1": ["a"], "m2": ["a"], "m3": ["a"], "m4": ["b"]}
    subgraph = graph(mentions, {"a": 3, "b": 1})
    links = graph_walk.shared_entity_links(subgraph, SIZE, ["m1"])
    assert set(links["m1"]) == {"m2", "m3"}
    assert graph_walk.strongest_candidates(links, {"m1": 1.0}) == ["m2", "m3"]
    repeats, adds = [1.0, 0.0], [0.0, 1.0]
    gains = graph_walk.marginal_gains(
        links, {"m1": 1.0}, token_matches(m1=[1.0, 0.0], m2=repeats, m3=adds), ["m2", "m3"]
    )
    assert gains["m3"] == 1.0
    assert gains["m2"] == pytest.approx(0.05 / 0.55, abs=0.01)
    assert graph_walk.marginal_gains(links, {"m1": 1.0}, None, ["m2", "m3"]) == {"m2": 1.0, "m3": 1.0}
    assert graph_walk.marginal_gains({}, {}, None, []) == {}


def test_an_entity_of_too_many_memories_links_nothing() -> None:
    crowd = {f"m{n}": ["a"] for n in range(5)}
    assert graph_walk.shared_entity_links(graph(crowd, {"a": 61}), 10_000, ["m0"]) == {"m0": {}}
    assert set(graph_walk.shared_entity_links(graph(crowd, {"a": 60}), 10_000, ["m0"])["m0"]) == {
        "m1",
        "m2",
        "m3",
        "m4",
    }


def test_the_best_rows_come_first_and_ties_in_the_tables_order() -> None:
    table = features.FeatureTable(("c", "a", "b")).with_column("dense", {"b": 1.0})
    assert scoring.top_rows(table, {"dense": 1.0}, 2) == ["b", "c"]


def test_seeds_share_one_and_favour_the_best() -> None:
    ids = tuple(f"m{i:02}" for i in range(30))
    table = features.FeatureTable(ids).with_column("dense", {uid: float(i) for i, uid in enumerate(ids)})
    shares = scoring.seed_weights(table, {"dense": 1.0})
    assert len(shares) == scoring.SEED_LIMIT
    assert sum(shares.values()) == pytest.approx(1.0)
    assert next(iter(shares)) == "m29"
    assert list(shares.values()) == sorted(shares.values(), reverse=True)


def test_second_hop_seeds_are_the_best_with_pagerank_added() -> None:
    table = features.FeatureTable(("a", "b", "c")).with_column("dense", {"a": 1.0, "b": 0.8})
    table = table.with_column("graph", {"b": 1.0})
    assert list(scoring.second_hop_seeds(table, {"dense": 1.0}, 2)) == ["b", "a"]
    assert scoring.second_hop_seeds(table, {"dense": 1.0}, 2)["b"] == 1.0


def test_entities_in_the_query_get_most_of_the_seed_weight() -> None:
    memories, entities = scoring.balance_seeds({"m": 1.0}, {"a": 3.0, "b": 1.0})
    assert memories == {"m": pytest.approx(0.2)}
    assert entities == {"a": pytest.approx(0.6), "b": pytest.approx(0.2)}
    assert scoring.balance_seeds({"m": 1.0}, {}) == ({"m": 1.0}, {})


def test_scores_are_shares_of_the_best() -> None:
    assert scoring.scores(np.array([4.0, 1.0, -2.0])).tolist() == [1.0, 0.25, 0.0]
    assert scoring.scores(np.array([0.0, 0.0])).tolist() == [1.0, 1.0]
    assert scoring.scores(np.array([2.0])).tolist() == [1.0]
    assert scoring.scores(np.array([])).tolist() == []


def test_a_passage_named_by_a_top_hit_gets_a_score() -> None:
    rows = [candidate_row(1), *(candidate_row(n, answer_types=AnswerType.TITLED) for n in (2, 3, 4))]
    evidence = make_evidence(*rows, matches=token_matches(m1=[1.0, 0.0], m2=[0.0, 1.0], m3=[1.0, 0.0], m4=[0.0, 1.0]))
    evidence = replace(evidence, neighbours={row.id: (None, None) for row in rows})
    table = features.FeatureTable(("m1", "m2", "m3", "m4"))
    assert passages.passage_candidates(evidence, table, np.array([4.0, 1.0, 2.0, 3.0])) == ["m4", "m3", "m2"]
    hit_terms = frozenset(term_counts("Anna was born in Tromsø"))
    titles = {"m2": passages.title_terms("Tromsø\nis a city."), "m3": passages.title_terms("Tromsø Airport\nis near."),
              "m4": passages.title_terms("Bergen\nis a city.")}  # fmt: skip
    passage_scores = passages.named_by_hits(evidence, {"m1": (1.0, hit_terms)}, titles, SIZE, {})
    assert passage_scores["m2"] == 1.0  # named in full, and matches the token that the hit does not
    assert 0 < passage_scores["m3"] < 0.1  # named in part, and matches the same token as the hit
    assert passage_scores["m4"] == 0.0
    assert passages.redundancy(evidence, "m1", ["m1", "m2", "m3"]) == {"m2": 0.0, "m3": 1.0}


def test_turns_of_a_conversation_are_not_passages() -> None:
    rows = [candidate_row(1, answer_types=AnswerType.TITLED), candidate_row(2, answer_types=AnswerType.TITLED)]
    table = features.FeatureTable(("m1", "m2"))
    assert passages.passage_candidates(make_evidence(*rows), table, np.array([1.0, 0.0])) == []
