"""The ledger's tables. Integer keys inside (measured: 2.4 times smaller files than text keys), UUIDs outside."""

from __future__ import annotations

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    SmallInteger,
    Table,
    UniqueConstraint,
)

from graphmem.stores.ledger.dialects import Text

# The alembic revision this code reads and writes: an older file is migrated to it, a newer one refused.
REVISION = "0001"

# Where PostgreSQL keeps all of it, apart from what others have in the same database.
SCHEMA = "graphmem"

metadata = MetaData()
# SQLite makes only INTEGER PRIMARY KEY an alias of the rowid; PostgreSQL wants eight bytes.
RowId = BigInteger().with_variant(Integer, "sqlite")


def _row_id() -> Column[int]:
    return Column("id", RowId, primary_key=True, autoincrement=True)


ledger = Table(
    "ledger",
    metadata,
    Column("id", SmallInteger, primary_key=True),
    Column("uuid", Text, nullable=False),
    Column("seq", BigInteger, nullable=False),  # the last sequence number given out
    Column("epoch", BigInteger, nullable=False),  # how often it was reset
    Column("embedder", Text),  # the model whose vectors the projections hold
    Column("secret", Text),  # where the secret of its digests is kept, and the secret's id
    Column("unguarded", BigInteger, nullable=False, server_default="0"),  # erased messages whose secret was lost
)

partitions = Table(
    "partitions",
    metadata,
    _row_id(),
    Column("key", Text, nullable=False, unique=True),
    Column("size", Integer, nullable=False),  # n: memories counted in the statistics below
)

memories = Table(
    "memories",
    metadata,
    _row_id(),
    Column("uid", Text, nullable=False, unique=True),
    Column("partition", ForeignKey("partitions.id"), nullable=False),
    Column("user_id", Text),
    Column("agent_id", Text),
    Column("run_id", Text),
    Column("kind", Text, nullable=False),
    Column("text", Text, nullable=False),
    Column("memory_type", Text),
    Column("metadata", JSON, nullable=False),
    Column("speaker", Text),
    Column("actor_id", Text),
    Column("role", Text),
    Column("message_id", Text),
    Column("session", Text, nullable=False),
    Column("source_only", Boolean, nullable=False),
    Column("confidence", Float, nullable=False, server_default="1"),  # 0..1, a language model's; 1 for what was said
    Column("at", BigInteger, nullable=False),
    # The row of the episode before it in its session, by `at`, then arrival. Derived, but asked for thousands of times
    # by every search; who comes after is who has this one before.
    Column("previous", RowId),
    Column("valid_from", BigInteger, nullable=False),
    Column("valid_to", BigInteger),
    Column("expires_at", BigInteger),
    Column("created_at", BigInteger, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
    Column("version", Integer, nullable=False),
    Column("seq", BigInteger, nullable=False),
    Column("embedding", Text),  # hash of the embedded text; NULL until enriched
    Column("windows", Integer, nullable=False),  # how many points it has
    Column("answer_types", SmallInteger, nullable=False, server_default="0"),  # model.AnswerType
    Column("question_share", Float, nullable=False, server_default="0"),  # 0..1, the share of it that is questions
    Index("memories_seq", "seq", unique=True),
    Index("memories_partition_at", "partition", "at"),
    Index("memories_session", "partition", "session", "at", "id"),
    Index("memories_previous", "previous"),
    Index("memories_agent", "agent_id", "at"),
    Index("memories_run", "run_id", "at"),
)

# The runs beside its own that a memory was said again in, in the order of `place`.
further_runs = Table(
    "further_runs",
    metadata,
    Column("run_id", Text, primary_key=True),
    Column("memory", ForeignKey("memories.id"), primary_key=True),
    Column("place", Integer, nullable=False),
    Index("further_runs_memory", "memory", "place"),
    sqlite_with_rowid=False,
)

# What was said, by who-said-what-when: keeps a replay from storing twice and an erased message from coming back.
messages = Table(
    "messages",
    metadata,
    Column("key", Text, primary_key=True),  # keyed by the secret, as are the words
    Column("memory", Text, nullable=False),
    Column("content_digest", Text),  # of the words; NULL once erased
)
Index("messages_memory", messages.c.memory)

# A fact or summary from its sources ("drawn_from"), those of them that it says otherwise by now ("corrects"), what
# retired what ("replaces").
links = Table(
    "links",
    metadata,
    Column("memory", ForeignKey("memories.id"), primary_key=True),
    Column("kind", Text, primary_key=True),
    Column("other", ForeignKey("memories.id"), primary_key=True),
    Index("links_other", "other"),
    sqlite_with_rowid=False,
)

events = Table(
    "events",
    metadata,
    _row_id(),
    Column("uid", Text, nullable=False, unique=True),
    Column("memory", Text, nullable=False),
    Column("event", Text, nullable=False),
    Column("old_text", Text),
    Column("new_text", Text),
    Column("previous_state", JSON(none_as_null=True)),  # the whole state before, which undo restores
    Column("reason", Text),
    Column("actor_id", Text),
    Column("role", Text),
    Column("memory_created_at", BigInteger, nullable=False),
    Column("at", BigInteger, nullable=False),
    Column("seq", BigInteger, nullable=False),
    Index("events_memory", "memory", "id"),
)

# What is no more: `kind` memory, relation or entity (by a hash of its key, sealed by the secret, until all projections
# have heard of it). A memory's scope stays, so that its history stays inside it.
tombstones = Table(
    "tombstones",
    metadata,
    Column("uid", Text, primary_key=True),
    Column("kind", Text, nullable=False),
    Column("partition", Text, nullable=False),
    Column("user_id", Text),
    Column("agent_id", Text),
    Column("run_id", Text),
    Column("at", BigInteger, nullable=False),
    Column("seq", BigInteger, nullable=False),
    Index("tombstones_seq", "seq", unique=True),
)

entities = Table(
    "entities",
    metadata,
    _row_id(),
    Column("partition", ForeignKey("partitions.id"), nullable=False),
    Column("key", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("type", Text, nullable=False),
    Column("mentions", Integer, nullable=False),  # df: the memories that hold the key
    # Set where something is said of it beyond the texts: other names, a chosen one. Projections show that.
    Column("seq", BigInteger),
    UniqueConstraint("partition", "key"),
    Index("entities_seq", "seq", unique=True),
)

mentions = Table(
    "mentions",
    metadata,
    Column("memory", ForeignKey("memories.id"), primary_key=True),
    Column("entity", ForeignKey("entities.id"), primary_key=True),
    Column("kind", SmallInteger, nullable=False),
    Column("at", BigInteger, nullable=False),
    sqlite_with_rowid=False,
)
# Covering and in the order of worth: the best mentions of a hub are read without touching the rest.
Index("mentions_best", mentions.c.entity, mentions.c.kind, mentions.c.at.desc(), mentions.c.memory)

relations = Table(
    "relations",
    metadata,
    _row_id(),
    Column("uid", Text, nullable=False, unique=True),
    Column("partition", ForeignKey("partitions.id"), nullable=False),
    Column("subject", ForeignKey("entities.id"), nullable=False),
    Column("predicate", Text, nullable=False),
    Column("object", ForeignKey("entities.id"), nullable=False),
    Column("at", BigInteger, nullable=False),  # the newest support's, for ordering only
    Column("seq", BigInteger, nullable=False),
    UniqueConstraint("partition", "subject", "predicate", "object"),
    Index("relations_seq", "seq", unique=True),
)
Index("relations_subject", relations.c.subject, relations.c.at.desc())
Index("relations_object", relations.c.object, relations.c.at.desc())

supports = Table(
    "supports",
    metadata,
    Column("relation", ForeignKey("relations.id"), primary_key=True),
    Column("memory", ForeignKey("memories.id"), primary_key=True),
    Column("fact", Text, nullable=False),
    Column("valid_at", BigInteger, nullable=False),
    Column("invalid_at", BigInteger),
    Column("confidence", Float, nullable=False, server_default="1"),  # 0..1, the extractor's
    Index("supports_memory", "memory"),
    sqlite_with_rowid=False,
)

# Kept by hash of the embedded text: no text is embedded twice, and erasing the last user erases the vector.
embeddings = Table(
    "embeddings",
    metadata,
    Column("hash", Text, primary_key=True),
    Column("model", Text, primary_key=True),
    Column("form", Text, primary_key=True),  # "vector", or a token matrix by the name of its projection
    Column("window", SmallInteger, primary_key=True),
    Column("data", LargeBinary, nullable=False),
    Column("uses", Integer, nullable=False),
)

# Two keys that mean one thing, or (negated) that do not although they look alike. Links, not merges: reversible. Each
# stands here twice, once from either end, so that the primary key serves a look-up of both.
aliases = Table(
    "aliases",
    metadata,
    Column("partition", ForeignKey("partitions.id"), primary_key=True),
    Column("key", Text, primary_key=True),
    Column("other", Text, primary_key=True),
    Column("origin", Text, nullable=False),  # who says so: "user", or the rule that found it
    Column("negated", Boolean, nullable=False),
    Column("at", BigInteger, nullable=False),
    sqlite_with_rowid=False,
)

# What an entity is called by its users' wish, whatever the texts call it.
names = Table(
    "names",
    metadata,
    Column("partition", ForeignKey("partitions.id"), primary_key=True),
    Column("key", Text, primary_key=True),
    Column("name", Text, nullable=False),
    Column("at", BigInteger, nullable=False),
    sqlite_with_rowid=False,
)

terms = Table(
    "terms",
    metadata,
    Column("partition", ForeignKey("partitions.id"), primary_key=True),
    Column("term", BigInteger, primary_key=True),  # a hash: no words outside `memories` and `events`
    Column("df", Integer, nullable=False),
    sqlite_with_rowid=False,
)

# Work that is owed: written with the words, done later if the process dies in between.
tasks = Table(
    "tasks",
    metadata,
    Column("memory", ForeignKey("memories.id"), primary_key=True),
    Column("kind", Text, primary_key=True),
    Column("version", Integer, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("error", Text),
)

# What a language model has still to do, recorded with the words it is about.
jobs = Table(
    "jobs",
    metadata,
    _row_id(),
    Column("kind", Text, nullable=False),  # "facts" or "summary"
    Column("partition", ForeignKey("partitions.id"), nullable=False),
    Column("user_id", Text),
    Column("agent_id", Text),
    Column("run_id", Text),
    Column("session", Text, nullable=False),
    Column("request", JSON, nullable=False),  # memory ids and instructions, never a memory's words
    Column("attempts", Integer, nullable=False),
    Column("error", Text),  # the name of the last failure
    Column("holder", Text),  # who is at it
    Column("until", BigInteger, nullable=False),  # microseconds: held until then, or not tried again before then
    Index("jobs_session", "partition", "session"),
)

# What the models took, added up. Parts of a scope that are not set are "".
usage = Table(
    "usage",
    metadata,
    Column("operation", Text, primary_key=True),
    Column("model", Text, primary_key=True),
    Column("user_id", Text, primary_key=True),
    Column("agent_id", Text, primary_key=True),
    Column("run_id", Text, primary_key=True),
    Column("calls", BigInteger, nullable=False),
    Column("prompt_tokens", BigInteger, nullable=False),
    Column("completion_tokens", BigInteger, nullable=False),
    Column("cached_tokens", BigInteger, nullable=False),
    Column("seconds", Float, nullable=False),
    Column("cost", Float, nullable=False),
    sqlite_with_rowid=False,
)

cursors = Table(
    "cursors",
    metadata,
    Column("projection", Text, primary_key=True),
    Column("seq", BigInteger, nullable=False),
)

# Who delivers to a projection that several processes share; a holder that dies is succeeded when its time is over.
leases = Table(
    "leases",
    metadata,
    Column("projection", Text, primary_key=True),
    Column("holder", Text),
    Column("until", BigInteger, nullable=False),  # microseconds by the database's clock
)

# Rows that a store refuses: named in `verify`, tried again by `repair`, never in the others' way.
dead_letters = Table(
    "dead_letters",
    metadata,
    Column("projection", Text, primary_key=True),
    Column("memory", Text, primary_key=True),
    Column("seq", BigInteger, nullable=False),
    Column("error", Text, nullable=False),
)

# mem0's ten columns over the richer events, for people with `sqlite3` and for scripts written for mem0.
HISTORY_VIEW = """
CREATE VIEW history AS
SELECT uid AS id, memory AS memory_id, old_text AS old_memory, new_text AS new_memory, event,
       {created} AS created_at, {updated} AS updated_at,
       CASE WHEN event = 'DELETE' THEN 1 ELSE 0 END AS is_deleted, actor_id, role
FROM events ORDER BY events.id
"""
