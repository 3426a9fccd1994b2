"""Explains hits, and why a memory is none. Pure.

A hit: the arms that found it, the path by which PageRank reached it, and one readable line. A memory that is none: the
first step of the search at which it fell out, in a sentence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any

from graphmem.model import Entity, EntityType, MemoryRecord, View, iso, optional_iso
from graphmem.retrieval.features import FeatureTable
from graphmem.retrieval.pagerank import Node, WalkResult
from graphmem.retrieval.reordering import RankedMemory, Reranked
from graphmem.retrieval.scoring import AUTO_MAX
from graphmem.retrieval.weights import Weights

# Characters of a memory that are quoted in the readable line.
QUOTED_CHARS = 60
# The greatest number of nodes of a path: over longer ones everything in a long session is reached from everything else.
MAX_PATH_LENGTH = 9
# Entity, memory, entity, memory.
SHORT_PATH_LENGTH = 4

# The arms and features that `Explanation.arms` may name, with their words in `Explanation.why`, in their order there.
# docs/concepts/retrieval.md explains each.
REASONS = {
    "dense": "close in meaning",
    "keyword": "shares words",
    "tokens": "says it in near words",
    "characters": "shares characters or beginnings of words",
    "dense_beside": "beside what is close in meaning",
    "keyword_beside": "beside what shares words",
    "tokens_beside": "beside what says it in near words",
    "characters_beside": "beside what shares characters or beginnings of words",
    "reply": "answers a question like it",
    "named": "named by what was found",
    "speaker": "said by who is asked about",
    "date": "from the time asked about",
    "reranker": "placed by the reranker",
}
# Their words for a query in a script without spaces, of which the keyword arm compares pairs of characters.
UNSPACED_REASONS = {
    "keyword": "shares words or pairs of characters",
    "keyword_beside": "beside what shares words or pairs of characters",
}
# Arms that `why` leaves to the path.
PATH_ARMS = frozenset({"graph", "hop"})
NO_REASON, REACHED_FROM = "next to what matches the question", "reached from"
NEXT_MESSAGE, PREVIOUS_MESSAGE = "next in the conversation", "previous in the conversation"
# The share of a score that a memory has from another one: a fact from its source message, a reply from its question.
RAISED = "raised"
# The share of a score that a memory has from its relevance, mostly less than 0.
RELEVANCE = "relevance"
# The share of a score that a memory loses to a better one with the same words, less than 0.
REPEATED = "repeated"
# The share of a score that a memory has from the reranker, less than 0 if that moved it back; its entry in `arms`.
RERANKER = "reranker"
# Shares that no arm tells, with their words: `Explanation.why` begins with them where they are the greatest.
FURTHER_REASONS = {
    "type": "has the kind of answer asked for",
    RAISED: "raised by its source message or its question",
    RELEVANCE: "likely to help",
}
# Shares up to this are sums of rounded numbers.
ROUNDING = 1e-12
# How the name of a feature ends that counts the memories before and after one with it.
BESIDE = "_beside"
# The names of token matches where the embedder does not read the query's script and characters are compared instead.
_CHARACTER_NAMES = {"tokens": "characters", "tokens_beside": "characters_beside"}
# How the arms are called in a sentence.
ARMS = {"dense": "vectors", "keyword": "words"}


@dataclass(frozen=True, slots=True)
class Explanation:
    """The explanation of one hit.

    `arms`: {arm or feature: {"rank": from 1, "score"}}. `path`: the memories, entities and relations in turn, from the
    node that matched the query to the hit; memories with their time and speaker, entities with their type. `why`: both
    as one line, the reasons with the greatest shares first. `shares`: {feature: {"value", "weight", "share"}}, the
    greatest first; the shares sum to the hit's score. `relevance`: what spoke for and against the hit, {feature: share
    of its log odds}, the greatest first.
    """

    arms: Mapping[str, Mapping[str, float]]
    path: tuple[Mapping[str, Any], ...]
    why: str
    shares: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    relevance: Mapping[str, float] = field(default_factory=dict)


class ExplanationBuilder:
    """Explains the hits of one search by its arms' scores {arm: {id: score}}, its PageRanks and its feature table.

    `weights` are those by which the table was summed to the `ranked` scores. `matches_characters`: whether the token
    columns are `CharacterMatches`. `is_unspaced`: whether the query has characters of a script without spaces.
    """

    def __init__(
        self,
        arms: Mapping[str, Mapping[str, float]],
        walks: Sequence[WalkResult],
        table: FeatureTable,
        weights: Weights,
        ranked: Sequence[RankedMemory],
        *,
        matches_characters: bool = False,
        is_unspaced: bool = False,
    ) -> None:
        self._arms = arms
        self._walks = walks
        self._table = table
        self._weights = weights
        self._memories = ranked
        self._names = _CHARACTER_NAMES if matches_characters else {}
        self._reasons = {**REASONS, **UNSPACED_REASONS} if is_unspaced else REASONS
        self._nearest = next(iter(arms.get("dense", {})), None)
        self._paths: dict[str, list[Node]] = {}

    def start_of(self, uid: str) -> str:
        """Returns the id of the first memory on the path to a hit; the hit's own id if it has no path."""
        return next((name for kind, name in self._path(uid) if kind == "memory"), uid)

    def near_start(self, uid: str) -> Node:
        """Returns the first node (entity or memory) of a short path over entities to a hit, else the hit itself.

        Short: at most `SHORT_PATH_LENGTH` nodes and no step from a memory to the next of its session.
        """
        path = self._path(uid)
        kinds = [kind for kind, _ in path]
        is_short = len(path) <= SHORT_PATH_LENGTH and ("memory", "memory") not in pairwise(kinds)
        return path[0] if path and is_short else ("memory", uid)

    def ids_on_paths(self, ids: Sequence[str], kind: str) -> list[str]:
        """Returns the memory ids (kind "memory") or entity keys (kind "entity") on the paths to these memories."""
        return [name for uid in ids for node_kind, name in self._path(uid) if node_kind == kind]

    def explain(
        self, memory: RankedMemory, records: Mapping[str, MemoryRecord], entities: Mapping[str, Entity]
    ) -> Explanation:
        """Explains one hit. `records` by id and `entities` by key are those of the nodes on its path."""
        uid = memory.id
        arms = {
            name: {"rank": ranks[uid], "score": scores[uid]}
            for name, (scores, ranks) in self._ranked.items()
            if uid in scores
        }
        if memory.reranked is not None:
            arms[RERANKER] = {"rank": memory.reranked.place, "score": memory.reranked.score}
        steps = _steps(self._path(uid), records, entities)
        shares = self.shares(memory)
        return Explanation(arms, tuple(steps), self._why(arms, steps, shares), shares)

    def shares(self, memory: RankedMemory) -> dict[str, Mapping[str, float]]:
        """Returns what each feature adds to the score, and what raised or moved the memory.

        `RAISED`: what another memory's score added; `RELEVANCE`: what the relevance added, or took away; `REPEATED`:
        what another memory with the same words took away; `RERANKER`: what the reranker added, whose score is the
        value.
        """
        place = self._table.places[memory.id]
        values = {name: float(column[place]) for name, column in self._table.columns.items()}
        parts = {name: weight * values[name] for name, weight in self._weights.items() if values.get(name)}
        total, score = sum(parts.values()), self._scores[memory.id]
        factor = score / total if total > 0 else 0.0
        shares: dict[str, Mapping[str, float]] = {
            self._names.get(name, name): {
                "value": values[name], "weight": self._weights[name], "share": factor * part
            }
            for name, part in parts.items()
            if part
        }  # fmt: skip
        before = memory.score if memory.reranked is None else memory.reranked.former_score
        own, repeated = memory.relevance_share, memory.repetition_share
        gain = before - own - repeated - (score if total > 0 else 0.0)
        for name, share in ((RAISED, gain), (RELEVANCE, own), (REPEATED, repeated)):
            if abs(share) > ROUNDING:
                shares[name] = {"value": share, "weight": 1.0, "share": share}
        if memory.reranked is not None:
            shares[RERANKER] = {"value": memory.reranked.score, "weight": 1.0, "share": memory.score - before}
        return dict(sorted(shares.items(), key=lambda item: -abs(item[1]["share"])))

    def _why(
        self,
        arms: Mapping[str, Mapping[str, float]],
        steps: Sequence[Mapping[str, Any]],
        shares: Mapping[str, Mapping[str, float]],
    ) -> str:
        def share(*names: str) -> float:
            return sum(shares[name]["share"] for name in names if name in shares)

        reasons = [
            (
                share(own := name.removesuffix(BESIDE), own + BESIDE, f"only_{own}"),
                f"{words} (rank {arms[name]['rank']:.0f})",
            )
            for name, words in self._reasons.items()
            if name in arms
        ]
        if len(steps) > 1:
            labels = []
            for step in steps[:-1]:
                if step["type"] != "memory":
                    labels.append(str(step["name"] if step["type"] == "entity" else step["predicate"]))
                    continue
                line = " ".join(step["memory"].split())
                labels.append(f"“{line[: QUOTED_CHARS - 1]}…”" if len(line) > QUOTED_CHARS else f"“{line}”")
            reasons.append((share(*PATH_ARMS), f"{REACHED_FROM} {' → '.join(labels)}"))
        said = max((part for part, _ in reasons), default=0.0)
        reasons += [(share(name), words) for name, words in FURTHER_REASONS.items() if share(name) > said]
        reasons.sort(key=lambda reason: -reason[0])  # stable: equal ones in the order of REASONS
        return "; ".join(words for _, words in reasons) or NO_REASON

    @cached_property
    def _scores(self) -> Mapping[str, float]:
        """The scores of the ranked memories, by id."""
        return {memory.id: memory.score for memory in self._memories}

    @cached_property
    def _ranked(self) -> dict[str, tuple[Mapping[str, float], Mapping[str, int]]]:
        """The positive scores of each arm and each explained feature, by id, best first, with their ranks."""
        columns = {
            self._names.get(name, name): dict(zip(self._table.ids, column.tolist(), strict=True))
            for name, column in self._table.columns.items()
            if name in REASONS
        }
        # A day next to the one that the query names has a score, but is not from the time asked about.
        columns["date"] = {uid: score for uid, score in columns.get("date", {}).items() if score == 1.0}
        scores_and_ranks: dict[str, tuple[Mapping[str, float], Mapping[str, int]]] = {}
        shown_arms = {name: scores for name, scores in self._arms.items() if name in REASONS or name in PATH_ARMS}
        for name, scores in {**columns, **shown_arms}.items():
            ranked = sorted(((uid, score) for uid, score in scores.items() if score > 0), key=lambda pair: -pair[1])
            scores_and_ranks[name] = dict(ranked), {uid: rank for rank, (uid, _) in enumerate(ranked, 1)}
        return scores_and_ranks

    def _path(self, uid: str) -> list[Node]:
        """Returns PageRank's path to a memory; the memory alone if it is the nearest to the query or has no path."""
        if uid not in self._paths:
            paths = (walk.path(uid) for walk in self._walks) if uid != self._nearest else iter(())
            self._paths[uid] = next((path for path in paths if 0 < len(path) <= MAX_PATH_LENGTH), [("memory", uid)])
        return self._paths[uid]


def _steps(
    path: Sequence[Node], records: Mapping[str, MemoryRecord], entities: Mapping[str, Entity]
) -> list[dict[str, Any]]:
    steps: list[dict[str, Any]] = []
    for kind, name in path:
        if kind != "memory":
            entity = entities.get(name)
            shown, entity_type = (name, EntityType.OTHER) if entity is None else (entity.name, entity.type)
            steps.append({"type": "entity", "key": name, "name": shown, "entity_type": entity_type.value})
            continue
        record = records.get(name)
        if steps and steps[-1]["type"] == "memory":
            last = records.get(steps[-1]["id"])
            is_before = last is not None and record is not None and (record.at, record.row) < (last.at, last.row)
            steps.append({"type": "relation", "predicate": PREVIOUS_MESSAGE if is_before else NEXT_MESSAGE})
        details: dict[str, Any] = {"memory": ""}  # erased since the graph was read
        if record is not None:
            details = {"memory": record.text, "at": iso(record.at), "role": record.role, "actor_id": record.actor_id}
        steps.append({"type": "memory", "id": name, **details})
    return steps


@dataclass(frozen=True, slots=True)
class Trace:
    """What a search knows of one memory, hit or not; ranks count from 1, None: it has none there.

    `arm_ranks`: among what each arm finds, at any depth; `arm_limits`: the last ranks that the arms give to the search.
    `rank`, `score`: among the candidates. `similarity`: its cosine (None: not compared). `passes_threshold`: whether
    it, or the start of its path, has the least cosine. `grouped_under`: the fact under which this source message
    stands. `place`: among what may be hits; `relevance` is assessed for the best of these only, `floor` is the least
    that a hit needs (None: any). `reranked`: what the reranker did with it (None: nothing). `hit`: its rank among the
    hits, `last_score` the score of the last of these. `shares` as in `Explanation`.
    """

    arm_ranks: Mapping[str, int] = field(default_factory=dict)
    arm_limits: Mapping[str, int] = field(default_factory=dict)
    candidates: int = 0
    rank: int | None = None
    score: float | None = None
    similarity: float | None = None
    passes_threshold: bool = True
    grouped_under: str | None = None
    place: int | None = None
    relevance: float | None = None
    floor: float | None = None
    reranked: Reranked | None = None
    hit: int | None = None
    last_score: float | None = None
    shares: Mapping[str, Mapping[str, float]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Absence:
    """Why a memory is no hit: `step` names where it fell out, `why` says it in a sentence, `details` as data.

    The steps, in their order: "not_visible", "filtered", "not_found", "threshold", "grouped", "relevance", "reranked"
    for a memory that would be a hit without the reranker, "rank", and "hit" for a memory that is one.
    """

    step: str
    why: str
    details: Mapping[str, Any] = field(default_factory=dict)


def hidden(record: MemoryRecord, view: View) -> Absence | None:
    """Returns why a view does not show a memory, None if it does."""
    if not record.is_in(view.scope):
        differs = [
            name
            for name, value in view.scope.parts.items()
            if getattr(record.scope, name) != value and not (name == "run_id" and value in record.further_runs)
        ]
        return Absence(
            "not_visible", f"it has another {' and '.join(differs)}", {"reason": "scope", "differs": differs}
        )
    if record.kind not in view.kinds:
        kind = record.kind.value
        return Absence("not_visible", f"it is of the kind {kind!r}, which kinds leaves out", {"reason": "kinds"})
    if view.as_of is not None and record.valid_from > view.as_of:
        since = iso(record.valid_from)
        details = {"reason": "as_of", "valid_from": since}
        return Absence("not_visible", f"at the time of as_of it was not there yet: it is valid from {since}", details)
    ends = (
        ("valid_to", record.valid_to, view.show_retired, "retired", "is no longer true since"),
        ("forgotten_at", record.forgotten_at, view.show_forgotten, "forgotten", "was forgotten at"),
        ("expiration_date", record.expires_at, view.show_expired, "expired", "expired at"),
    )
    for name, end, is_shown, reason, words in ends:
        if view.is_past(end) and not is_shown:
            at = optional_iso(end)
            return Absence("not_visible", f"it {words} {at}; show_{reason} finds it", {"reason": reason, name: at})
    return None


def filtered(refusing: Sequence[str]) -> Absence | None:
    """Returns that a memory is refused by these conditions of the filter, None if there are none."""
    if not refusing:
        return None
    return Absence("filtered", f"`filters` refuses it: {', '.join(refusing)}", {"conditions": list(refusing)})


def left_out(trace: Trace, limit: int | None, threshold: float | None) -> Absence:
    """Returns where a search left a visible memory, from what the search knows of it."""
    if trace.rank is None:
        found = (
            f"{ARMS[name]}: {f'rank {rank}' if (rank := trace.arm_ranks.get(name)) else 'not at all'}, of {last}"
            for name, last in trace.arm_limits.items()
        )
        why = f"neither arm gives it to the search ({'; '.join(found)}), and no path leads to it"
        return Absence("not_found", why, {"ranks": dict(trace.arm_ranks), "limits": dict(trace.arm_limits)})
    details: dict[str, Any] = {"rank": trace.rank, "candidates": trace.candidates, "score": trace.score or 0.0}
    details |= {"last_score": trace.last_score, "relevance": trace.relevance, "shares": trace.shares}
    if trace.reranked is not None:
        details["reranked"] = asdict(trace.reranked)
    if trace.hit is not None:
        return Absence("hit", f"it is hit {trace.hit}", {**details, "rank": trace.hit})
    if not trace.passes_threshold:
        why = f"its cosine, {trace.similarity or 0.0:.3f}, is below the threshold, {threshold}"
        return Absence("threshold", why, {**details, "similarity": trace.similarity, "threshold": threshold})
    if trace.grouped_under is not None:
        why = f"it is a source message of {trace.grouped_under}, and stands under that hit"
        return Absence("grouped", why, {**details, "under": trace.grouped_under})
    return _behind(trace, limit, details)


def _behind(trace: Trace, limit: int | None, details: Mapping[str, Any]) -> Absence:
    """Returns why a memory that may be a hit is none: its relevance, or what stands before it."""
    if trace.relevance is not None and trace.floor is not None and trace.relevance < trace.floor:
        why = f"its relevance, {trace.relevance:.3f}, is below {trace.floor:.3f}"
        return Absence("relevance", why, {**details, "floor": trace.floor})
    if (moved := trace.reranked) is not None and moved.before <= (limit or AUTO_MAX):
        why = f"the reranker moves it from {moved.before} to {moved.place}, and {limit or 'at most 50'} are asked for"
        return Absence("reranked", why, {**details, "rank": moved.place})
    place = (trace.place or trace.rank or 1) if moved is None else moved.place
    why = f"{place - 1} come before it, of which {limit or 'at most 50'} are asked for"
    if (lacking := (trace.last_score or 0.0) - (trace.score or 0.0)) > 0:
        why += f"; its score is {lacking:.3f} below that of the last hit"
    return Absence("rank", why, {**details, "rank": place})
