"""The ledger's tables.

Rows refer to each other by integer keys (measured: files 2.4 times smaller than with text keys); UUIDs are for callers
and other stores. Times are microseconds since 1970-01-01 UTC.
"""

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
    false,
)

from graphmem.stores.ledger.sql import StoredJson, Text

# The alembic revision that this code reads and writes. An older ledger is migrated to it, a newer one refused.
REVISION = "0009"

# The PostgreSQL schema of all tables, apart from other applications' in the same database.
POSTGRES_SCHEMA = "graphmem"

metadata = MetaData()
# SQLite makes only INTEGER PRIMARY KEY an alias of the rowid; PostgreSQL needs eight bytes.
RowId = BigInteger().with_variant(Integer, "sqlite")


def _row_id() -> Column[int]:
    return Column("id", RowId, primary_key=True, autoincrement=True)


ledger = Table(
    "ledger",
    metadata,
    Column("id", SmallInteger, primary_key=True),
    Column("uuid", Text, nullable=False),
    Column("seq", BigInteger, nullable=False),  # the last sequence number taken; on SQLite, else 0
    Column("seq_base", BigInteger, nullable=False, server_default="0"),  # on PostgreSQL (`sequence`), else 0
    Column("epoch", BigInteger, nullable=False),  # number of resets
    Column("embedder", Text),  # the model whose vectors the projections hold
    Column("embedder_dims", Integer),  # the length of these vectors
    Column("multilingual", Text),  # the embedding form in the multilingual space that all embedded texts have
    Column("secret", Text),  # "configured:ID" or "file:ID": place and id of the secret key
    Column("unguarded", BigInteger, nullable=False, server_default="0"),  # erased messages whose secret key was lost
    Column("erasures", BigInteger, nullable=False, server_default="0"),  # commits that erased words since compaction
    Column("repairs", BigInteger, nullable=False, server_default="0"),  # how often derived columns were computed anew
    Column("lifecycle_since", BigInteger),  # when the lifecycle was first enabled
)

partitions = Table(
    "partitions",
    metadata,
    _row_id(),
    Column("key", Text, nullable=False, unique=True),
    Column("size", Integer, nullable=False),  # N of the term statistics: enriched memories
    Column("rules", Text),  # the digest of the rules by which its memories are rated
    Column("cycled_at", BigInteger),  # the end of its last cycle
    Column("cycle_changed", Integer),  # how many memories that one forgot, promoted, made of others and erased
    # What that one would have forgotten, and of how many memories, if the brake held it; else NULL.
    Column("held_forgotten", Integer),
    Column("held_memories", Integer),
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
    Column("metadata", StoredJson, nullable=False),
    Column("speaker", Text),
    Column("actor_id", Text),
    Column("role", Text),
    Column("message_id", Text),
    Column("session", Text, nullable=False),
    Column("source_only", Boolean, nullable=False),
    Column("confidence", Float, nullable=False, server_default="1"),  # 0..1, a language model's; 1 for messages
    Column("at", BigInteger, nullable=False),
    Column("utc_offset", SmallInteger),  # minutes by which the clock of whoever spoke is ahead of UTC; NULL: unknown
    # The row of the preceding episode in its session, by `at`, then by row. Derived, but every search reads it
    # thousands of times. The following episode is the one whose `previous` is this row.
    Column("previous", RowId),
    Column("valid_from", BigInteger, nullable=False),
    Column("valid_to", BigInteger),
    Column("expires_at", BigInteger),
    # The lifecycle: model.Layer, 0..1, 0..3, kept whatever happens, hidden since.
    Column("layer", Text, nullable=False, server_default="short_term"),
    Column("importance", Float, nullable=False, server_default="0.5"),
    Column("level", SmallInteger, nullable=False, server_default="0"),
    Column("pinned", Boolean, nullable=False, server_default=false()),
    Column("forgotten_at", BigInteger),
    Column("created_at", BigInteger, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
    Column("version", Integer, nullable=False),
    Column("seq", BigInteger, nullable=False),
    Column("embedding", Text),  # hash of the embedded text; NULL until enriched
    Column("windows", Integer, nullable=False),  # number of its points in the vector index
    Column("answer_types", SmallInteger, nullable=False, server_default="0"),  # model.AnswerType
    Column("question_share", Float, nullable=False, server_default="0"),  # 0..1, questions in its text
    Column("terms", LargeBinary),  # numbers and BM25 weights of its terms (`index_blocks`); NULL until enriched
    Index("memories_seq", "seq", unique=True),
    Index("memories_partition_at", "partition", "at"),
    Index("memories_session", "partition", "session", "at", "id"),
    Index("memories_previous", "previous"),
    Index("memories_agent", "agent_id", "at"),
    Index("memories_run", "run_id", "at"),
    # No row number is given twice: accesses of an erased memory that are not written yet would count for another one.
    sqlite_autoincrement=True,
)
# The columns of memories with times, and those with times that may be NULL.
TIME_COLUMNS = ("at", "valid_from", "created_at", "updated_at")
OPTIONAL_TIME_COLUMNS = ("valid_to", "expires_at", "forgotten_at")
# How often memories were found, and their retention at the last cycle. Changes here are delivered nowhere.
vitals = Table(
    "vitals",
    metadata,
    Column("memory", ForeignKey("memories.id"), primary_key=True),
    Column("strength", Float, nullable=False, server_default="1"),  # 0..1
    Column("accesses", Integer, nullable=False, server_default="0"),
    Column("accessed_at", BigInteger),
    Column("rated", Integer),  # the version of its text whose importance is stored
    Column("importance_given", Boolean, nullable=False, server_default=false()),  # by the caller: none is computed
    Column("type_computed", Boolean, nullable=False, server_default=false()),  # nobody named `memory_type`
)

# What came with the messages of memories beside words. The bytes are nowhere in the ledger.
attachments = Table(
    "attachments",
    metadata,
    _row_id(),
    Column("memory", ForeignKey("memories.id"), nullable=False),
    Column("position", Integer, nullable=False),  # its place in the message, from 0
    Column("kind", Text, nullable=False),  # model.AttachmentKind
    Column("mime", Text),
    Column("ref", Text, nullable=False),  # a URL, a file's id, the name of a blob, or the beginning of the data
    Column("sha256", Text),  # of the data, if that came with the message
    Column("bytes", BigInteger),  # likewise
    Column("caption", Text),
    Column("transcript", Text),
    Column("described_by", Text),  # who gave these: "message", "function" or a model; NULL: nobody
    Column("at", BigInteger),  # when
    UniqueConstraint("memory", "position"),
)
Index("attachments_sha256", attachments.c.sha256)

# Further runs in which a memory's message was repeated, ordered by `place`.
further_runs = Table(
    "further_runs",
    metadata,
    Column("run_id", Text, primary_key=True),
    Column("memory", ForeignKey("memories.id"), primary_key=True),
    Column("place", Integer, nullable=False),
    Index("further_runs_memory", "memory", "place"),
    sqlite_with_rowid=False,
)

# Stored messages, by a key of speaker, text and time or of the message's own id. They keep a repeated message from
# being stored twice, and an erased one from being stored again.
messages = Table(
    "messages",
    metadata,
    Column("key", Text, primary_key=True),  # digest with the secret key
    Column("memory", Text, nullable=False),
    Column("content_digest", Text),  # likewise, of the text; NULL once erased
)
Index("messages_memory", messages.c.memory)

# Links between memories, by kind: from a fact or summary to its sources ("drawn_from"), from a corrected fact to the
# sources that it contradicts by now ("corrects"), from a memory to the one that it retired ("replaces"), and to the
# forgotten one that was merged into it ("compresses"), from an abstraction to what it was made of ("abstracts"), and
# from each memory that was made of others to all of these ("made_of").
links = Table(
    "links",
    metadata,
    Column("memory", ForeignKey("memories.id"), primary_key=True),
    Column("kind", Text, primary_key=True),
    Column("other", ForeignKey("memories.id"), primary_key=True),
    Index("links_other", "other"),
    sqlite_with_rowid=False,
)

# Exact values that adapters of agent frameworks store: entries of a store, messages of a chat. The row ids give the
# order in which items were stored.
items = Table(
    "items",
    metadata,
    _row_id(),
    Column("digest", Text, nullable=False, unique=True),  # of scope, namespace and key, which are too long for an index
    Column("user_id", Text),
    Column("agent_id", Text),
    Column("run_id", Text),
    Column("namespace", Text, nullable=False),  # items.encode_namespace
    Column("key", Text, nullable=False),
    Column("value", Text, nullable=False),  # JSON
    Column("memory", ForeignKey("memories.id")),  # the memory of its text
    Column("created_at", BigInteger, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
    Column("ttl_minutes", Float),
    Column("expires_at", BigInteger),
    Index("items_user", "user_id", "namespace"),
    Index("items_agent", "agent_id", "namespace"),
    Index("items_memory", "memory"),
    Index("items_expires", "expires_at"),
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
    Column("previous_state", StoredJson(none_as_null=True)),  # the memory before the change, for undo
    Column("reason", Text),
    Column("actor_id", Text),
    Column("role", Text),
    Column("memory_created_at", BigInteger, nullable=False),
    Column("at", BigInteger, nullable=False),
    Column("seq", BigInteger, nullable=False),
    Column("batch", Text),  # the id of the cycle that it is part of
    Column("digest", LargeBinary),  # of all that it says, for `verify`; NULL once its memory was erased
    Index("events_memory", "memory", "id"),
    sqlite_autoincrement=True,  # no id is given twice: it is where followers are
)

# What happened beside the history of memories, for followers. No text is in here.
occurrences = Table(
    "occurrences",
    metadata,
    _row_id(),
    Column("uid", Text, nullable=False, unique=True),
    Column("event", Text, nullable=False),  # model.EventType
    Column("user_id", Text),
    Column("payload", JSON, nullable=False),  # ids and numbers
    Column("at", BigInteger, nullable=False),
    Index("occurrences_event", "event", "id"),
    sqlite_autoincrement=True,
)

# Erased memories, relations and entities (`kind`). The uid of an entity is a hash of its key, encrypted with the secret
# key; its tombstone is deleted once all projections have received it. A memory's scope is kept, because its history
# belongs to it.
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
    sqlite_with_rowid=False,
)

entities = Table(
    "entities",
    metadata,
    _row_id(),
    Column("partition", ForeignKey("partitions.id"), nullable=False),
    Column("key", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("type", Text, nullable=False),
    Column("mentions", Integer, nullable=False),  # df: memories that mention the entity
    # The key without the marks of Latin letters, if it has some, by which it is found as people type it elsewhere.
    Column("bare_key", Text),
    # Set for an entity with aliases or a chosen name, which projections show.
    Column("seq", BigInteger),
    UniqueConstraint("partition", "key"),
    Index("entities_seq", "seq", unique=True),
    Index("entities_bare_key", "partition", "bare_key"),
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
# Covering, and in the order in which mentions are ranked: the best ones of a frequent entity are read without the rest.
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
    Column("at", BigInteger, nullable=False),  # of its newest support, for ordering only
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
    Column("valid_at", BigInteger),  # NULL: over, and it is not known when it was
    Column("invalid_at", BigInteger),
    Column("confidence", Float, nullable=False, server_default="1"),  # 0..1, the extractor's
    Index("supports_memory", "memory"),
    sqlite_with_rowid=False,
)

# Embeddings by hash of the partition and the embedded text: no text is embedded twice for a partition, and erasing its
# last memory there erases the embedding.
embeddings = Table(
    "embeddings",
    metadata,
    Column("hash", Text, primary_key=True),
    Column("model", Text, primary_key=True),
    Column("form", Text, primary_key=True),  # the embedding form: "vector", that of the tokens, the multilingual one
    Column("window", SmallInteger, primary_key=True),
    Column("data", LargeBinary, nullable=False),
    Column("uses", Integer, nullable=False),
)

# Aliases: two keys that mean one entity, or (negated) that do not although they look alike. Nothing is merged, so they
# are reversible. Each has two rows, one from either key, so that the primary key serves look-ups of both.
aliases = Table(
    "aliases",
    metadata,
    Column("partition", ForeignKey("partitions.id"), primary_key=True),
    Column("key", Text, primary_key=True),
    Column("other", Text, primary_key=True),
    Column("origin", Text, nullable=False),  # "user", or the rule that found it
    Column("negated", Boolean, nullable=False),
    Column("at", BigInteger, nullable=False),
    sqlite_with_rowid=False,
)

# Names of entities that users chose, whatever name the texts use.
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
    Column("term", BigInteger, primary_key=True),  # a hash: no text outside `memories` and `events`
    Column("df", Integer, nullable=False),
    sqlite_with_rowid=False,
)

# Jobs: work that a change leaves for later, stored in the transaction of the change, so that it outlives a process.
jobs = Table(
    "jobs",
    metadata,
    _row_id(),
    Column("kind", Text, nullable=False),  # jobs.JobKind
    Column("partition", ForeignKey("partitions.id"), nullable=False),
    Column("user_id", Text),
    Column("agent_id", Text),
    Column("run_id", Text),
    Column("session", Text),
    Column("memory", ForeignKey("memories.id")),  # the one to be enriched, or whose attachments to be described
    Column("subject", Text),  # what else the job is the only one of its kind about
    # Memory ids and instructions, never a memory's text; of attachments to be described what the model gets, and
    # the message, if it has no words and so no memory yet.
    Column("request", JSON, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("error", Text),  # the name of the last failure
    Column("holder", Text),  # who has claimed it
    Column("claimable_at", BigInteger, nullable=False),  # end of the claim, or of the pause after a failure
    Column("created_at", BigInteger, nullable=False),
    UniqueConstraint("kind", "memory"),
    UniqueConstraint("kind", "partition", "subject"),
    Index("jobs_memory", "memory"),
    sqlite_autoincrement=True,  # no id is given twice: two processes may work on a job, and one completes it first
)

# Totals of language model usage. Unset parts of a scope are "".
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

# Keys by which clients of the service are recognised. `reset` keeps them.
api_keys = Table(
    "api_keys",
    metadata,
    Column("id", Text, primary_key=True),
    Column("hash", LargeBinary, nullable=False),
    Column("label", Text, nullable=False),
    Column("role", Text, nullable=False),
    Column("user_id", Text),
    Column("agent_id", Text),
    Column("created_at", BigInteger, nullable=False),
    Column("expires_at", BigInteger),
    Column("revoked_at", BigInteger),
    Column("rate", Text),  # its rate limit in place of the configured one
    Column("last_used_at", BigInteger),  # of about its last use: written at most once a minute
    sqlite_with_rowid=False,
)

# Settings that change while the service runs. A setting that was removed keeps its row, without a value, which tells
# who removed it.
settings = Table(
    "settings",
    metadata,
    Column("user_id", Text, primary_key=True),  # "": of all users
    Column("name", Text, primary_key=True),
    Column("value", Text),  # JSON
    Column("changed_by", Text, nullable=False),  # the id of a key
    Column("at", BigInteger, nullable=False),
    sqlite_with_rowid=False,
)

# How far projections and followers (`event:TYPE@NAME`) are.
cursors = Table(
    "cursors",
    metadata,
    Column("projection", Text, primary_key=True),
    Column("seq", BigInteger, nullable=False),  # a follower's is a row of `events`, or of `occurrences`
)

# Leases of followers, and of projections that several processes share. One that has expired can be taken by another
# holder.
leases = Table(
    "leases",
    metadata,
    Column("projection", Text, primary_key=True),
    Column("holder", Text),
    Column("expires_at", BigInteger, nullable=False),  # by the database's clock
)

# Dead letters: rows that a store refuses. `verify` names them, `repair` tries them again; delivery of others continues.
# Of a follower, events that its webhook did not take: `memory` is then the id of the event.
dead_letters = Table(
    "dead_letters",
    metadata,
    Column("projection", Text, primary_key=True),
    Column("memory", Text, primary_key=True),
    Column("seq", BigInteger, nullable=False),
    Column("error", Text, nullable=False),
)

# The ten columns of mem0's history table over `events`, for the `sqlite3` shell and for scripts written for mem0.
HISTORY_VIEW = """
CREATE VIEW history AS
SELECT uid AS id, memory AS memory_id, old_text AS old_memory, new_text AS new_memory, event,
       {created} AS created_at, {updated} AS updated_at,
       CASE WHEN event = 'DELETE' THEN 1 ELSE 0 END AS is_deleted, actor_id, role
FROM events ORDER BY events.id
"""

# Indexes of few rows, in SQL that both databases read: SQLAlchemy would import the dialect of either for the conditions
# of both. Forgotten memories by the hash of their text: one that is said again comes back. The events of a cycle.
PARTIAL_INDEXES = (
    "CREATE INDEX memories_forgotten ON memories (partition, embedding) WHERE forgotten_at IS NOT NULL",
    "CREATE INDEX events_batch ON events (batch) WHERE batch IS NOT NULL",
)
