"""Limits of the service that no configuration changes.

Those that an operator sets are fields of `ServeSettings` and `ProxySettings` (`graphmem.settings.schema`); those of a
call of the library, which the service makes, stand in `graphmem.boundary.validation` and the setting `limits`.
"""

# --- connections ------------------------------------------------------------------------------------------------------

# Connections of a process, if the system lets it have two descriptors for each and some for stores and files, and
# those that may wait to be accepted: an event loop that can accept none tries, and complains, as often at once.
MAX_CONNECTIONS, OTHER_DESCRIPTORS, BACKLOG = 1000, 192, 128
# Requests that begin in one pass of the event loop: 10 ms for files of the page, which take 0.7 ms each.
REQUESTS_PER_PASS = 16
# The largest head of a request, in bytes and in headers, and the seconds that it may take.
MAX_HEAD_BYTES, MAX_HEADERS = 32 * 1024, 100
HEAD_SECONDS = 30.0
# Seconds that the next part of a body may take.
BODY_SECONDS = 30.0
# Seconds for which an answer waits for a client that takes nothing, and the bytes of all answers that wait for clients:
# above that the connection with most of them is closed.
STALL_SECONDS, MAX_UNSENT_BYTES = 60.0, 256 * 1024 * 1024
# The share of the connections that the requests of one user may take, those that wait for an answer among them.
CONNECTION_SHARE = 0.25
# Seconds between two equal warnings about connections.
WARNING_SECONDS = 60.0

# --- requests and answers ---------------------------------------------------------------------------------------------

# Fields of a body, and of those that cannot be used the ones that an error names.
MAX_FIELDS = 100
MAX_REPORTED = 5
# Memories that one request changes or erases.
MAX_BATCH = 1000
# Characters of a filter for words: each word is a condition of the statement.
MAX_WORDS_CHARS = 256
# Characters of a header Idempotency-Key, and of a time in a query.
MAX_IDEMPOTENCY_CHARS = 256
MAX_MOMENT_CHARS = 100
# Memories of a page of a list; of a graph; entities of a list; users, agents and runs of a list.
MAX_PAGE = 1000
MAX_GRAPH_MEMORIES = 10_000
MAX_ENTITIES = 1000
MAX_OWNERS = 100_000
# Bytes of the memories of an answer, as JSON: a page of a list ends there, other answers are refused. A memory can have
# 1.3 MB, so that 1,000 of them take more than the process has.
MAX_PAGE_BYTES = 16 * 1024 * 1024
# The smallest JSON answer that is compressed: a smaller one is one packet as it is. Bytes of random length beside it: a
# length that is one byte shorter, as after a right guess at its words, shows after some 100,000 answers.
MIN_COMPRESSED_BYTES, MAX_PADDING_BYTES = 1400, 255
# Latest requests that are kept for an admin.
MAX_REQUESTS = 200
# Characters of a block of memories, and of the prompt that rewrites a question.
MAX_CONTEXT_CHARS = 20_000
MAX_PROMPT_CHARS = 20_000

# --- the proxy --------------------------------------------------------------------------------------------------------

# The most bytes of an answer that are read for its text.
MAX_ANSWER_BYTES = 4 * 1024 * 1024
# Seconds for which the end of an answer waits for a ledger that takes nothing, until the words of its chat are durable;
# and for one that is slow, because many chats end at the same time. One chat takes 20 ms on an idle machine.
STALLED_SECONDS, STORED_SECONDS = 3.0, 30.0
# Seconds for which the endpoint may be silent, in front of an answer or within it: more than any client waits.
UPSTREAM_SECONDS = 3600.0
# Seconds for which the list of models is kept, and for which it is waited; its most bytes.
MODELS_SECONDS, MODELS_TIME_LIMIT, MAX_MODELS_BYTES = 60.0, 30.0, 8 * 1024 * 1024
# Blocks that are kept for the further requests of a turn in which the model calls tools, and for how many seconds.
MAX_BLOCKS, BLOCK_SECONDS = 1000, 300.0
# The beginning of a user message, in characters, by which requests that clients make for themselves are recognised.
SKIP_CHARS = 1000
# Turns of a chat that are read: the model is shown these, so a recall need not repeat them.
MAX_TURNS = 200
# Values in the body of a chat that has memories: one of 32 MiB could have 16 million, which take a gigabyte.
MAX_CHAT_VALUES = 1_000_000
# Messages that are looked through for them, as a chat may have thousands of messages of tools; those of a saved chat.
MAX_MESSAGES = 2000

# --- exports and imports ----------------------------------------------------------------------------------------------

MAX_IMPORT_BYTES = 1024**3
# Exports and imports that run at a time: of admins, and exports of all others, of whom each user has one.
TRANSFERS = 4
# Seconds after which the client whose user has an export running may ask again.
NEXT_EXPORT_SECONDS = 5
# Bytes of a chunk of an export, at least (a longer line is one chunk), and the chunks that may wait for the client.
CHUNK_BYTES, MAX_CHUNKS = 64 * 1024, 4
# Seconds that an export may take: it keeps a connection to the ledger, however slowly the client reads.
EXPORT_SECONDS = 3600.0
# Bytes of an import that are read ahead.
READ_BYTES = 256 * 1024

# --- calls ------------------------------------------------------------------------------------------------------------

# The share of the threads, and of the queue in front of them, that the calls of one user may take.
USER_SHARE = 0.5

# --- keys and rates ---------------------------------------------------------------------------------------------------

# Threads that read keys, and the seconds that the ledger may take.
KEY_THREADS, KEY_SECONDS = 2, 1.0
# While the ledger does not answer: seconds for which a key is taken after its last reading, and the most such keys.
RECENT_SECONDS, MAX_RECENT_KEYS = 300.0, 10_000
# Requests without a valid key from one address.
REFUSALS = "20/minute"

# --- times ------------------------------------------------------------------------------------------------------------

# Seconds within which the messages of a request, without an id or a time, are stored once: somebody saved twice, or a
# client sent again what had no answer.
REPEAT_SECONDS = 60.0
# Seconds that the ledger may take to answer a question about the service's health.
PROBE_SECONDS = 3.0
# Seconds that a recall may take, the reading of the settings included.
RECALL_SECONDS = 3.0
# Seconds for which the answer to a saved chat waits for the settings, which say whether chats are stored.
SAVED_SECONDS = 0.03
# Seconds that a process of several may take to answer the one that started it. It does so only once it has imported its
# modules, which takes a busy machine many times as long: whoever waits less kills it and starts the next one, for ever.
WORKER_ANSWER_SECONDS = 120
# Seconds from a signal to the end of the service, whatever is still under way; in them, those that running requests and
# streams have, and after these the accepted chats.
END_SECONDS, GRACE_SECONDS, CHATS_SECONDS = 30.0, 15, 12.0
# Seconds after these for which a worker tries to hand back the jobs that it has not finished.
HAND_BACK_SECONDS = 2.0
