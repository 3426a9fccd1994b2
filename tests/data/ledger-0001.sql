PRAGMA application_id = 1735222637;
BEGIN TRANSACTION;
CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL PRIMARY KEY);
INSERT INTO "alembic_version" VALUES('0001');
CREATE TABLE aliases (
	partition INTEGER NOT NULL, 
	"key" TEXT NOT NULL, 
	other TEXT NOT NULL, 
	origin TEXT NOT NULL, 
	negated BOOLEAN NOT NULL, 
	at BIGINT NOT NULL, 
	PRIMARY KEY (partition, "key", other), 
	FOREIGN KEY(partition) REFERENCES partitions (id)
)
 WITHOUT ROWID

;
CREATE TABLE api_keys (
	id TEXT NOT NULL, 
	hash BLOB NOT NULL, 
	label TEXT NOT NULL, 
	role TEXT NOT NULL, 
	user_id TEXT, 
	agent_id TEXT, 
	created_at BIGINT NOT NULL, 
	expires_at BIGINT, 
	revoked_at BIGINT, 
	PRIMARY KEY (id)
)
 WITHOUT ROWID

;
INSERT INTO "api_keys" VALUES('0a1b2c3d',X'00','phone','user','ana',NULL,1700000000000000,NULL,NULL);
CREATE TABLE cursors (
	projection TEXT NOT NULL, 
	seq BIGINT NOT NULL, 
	PRIMARY KEY (projection)
);
CREATE TABLE dead_letters (
	projection TEXT NOT NULL, 
	memory TEXT NOT NULL, 
	seq BIGINT NOT NULL, 
	error TEXT NOT NULL, 
	PRIMARY KEY (projection, memory)
);
CREATE TABLE embeddings (
	hash TEXT NOT NULL, 
	model TEXT NOT NULL, 
	form TEXT NOT NULL, 
	window SMALLINT NOT NULL, 
	data BLOB NOT NULL, 
	uses INTEGER NOT NULL, 
	PRIMARY KEY (hash, model, form, window)
);
CREATE TABLE entities (
	id INTEGER NOT NULL, 
	partition INTEGER NOT NULL, 
	"key" TEXT NOT NULL, 
	name TEXT NOT NULL, 
	type TEXT NOT NULL, 
	mentions INTEGER NOT NULL, 
	seq BIGINT, 
	PRIMARY KEY (id), 
	UNIQUE (partition, "key"), 
	FOREIGN KEY(partition) REFERENCES partitions (id)
);
CREATE TABLE events (
	id INTEGER NOT NULL, 
	uid TEXT NOT NULL, 
	memory TEXT NOT NULL, 
	event TEXT NOT NULL, 
	old_text TEXT, 
	new_text TEXT, 
	previous_state JSON, 
	reason TEXT, 
	actor_id TEXT, 
	role TEXT, 
	memory_created_at BIGINT NOT NULL, 
	at BIGINT NOT NULL, 
	seq BIGINT NOT NULL, 
	PRIMARY KEY (id), 
	UNIQUE (uid)
);
CREATE TABLE further_runs (
	run_id TEXT NOT NULL, 
	memory INTEGER NOT NULL, 
	place INTEGER NOT NULL, 
	PRIMARY KEY (run_id, memory), 
	FOREIGN KEY(memory) REFERENCES memories (id)
)
 WITHOUT ROWID

;
CREATE TABLE items (
	id INTEGER NOT NULL, 
	digest TEXT NOT NULL, 
	user_id TEXT, 
	agent_id TEXT, 
	run_id TEXT, 
	namespace TEXT NOT NULL, 
	"key" TEXT NOT NULL, 
	value TEXT NOT NULL, 
	memory INTEGER, 
	created_at BIGINT NOT NULL, 
	updated_at BIGINT NOT NULL, 
	ttl_minutes FLOAT, 
	expires_at BIGINT, 
	PRIMARY KEY (id), 
	UNIQUE (digest), 
	FOREIGN KEY(memory) REFERENCES memories (id)
);
CREATE TABLE jobs (
	id INTEGER NOT NULL, 
	kind TEXT NOT NULL, 
	partition INTEGER NOT NULL, 
	user_id TEXT, 
	agent_id TEXT, 
	run_id TEXT, 
	session TEXT NOT NULL, 
	request JSON NOT NULL, 
	attempts INTEGER NOT NULL, 
	error TEXT, 
	holder TEXT, 
	claimable_at BIGINT NOT NULL, 
	PRIMARY KEY (id), 
	FOREIGN KEY(partition) REFERENCES partitions (id)
);
INSERT INTO "jobs" VALUES(1,'facts',1,'ana',NULL,NULL,'s','{"memories": []}',1,NULL,NULL,1);
CREATE TABLE leases (
	projection TEXT NOT NULL, 
	holder TEXT, 
	expires_at BIGINT NOT NULL, 
	PRIMARY KEY (projection)
);
CREATE TABLE ledger (
	id SMALLINT NOT NULL, 
	uuid TEXT NOT NULL, 
	seq BIGINT NOT NULL, 
	epoch BIGINT NOT NULL, 
	embedder TEXT, 
	embedder_dims INTEGER, 
	secret TEXT, 
	unguarded BIGINT DEFAULT '0' NOT NULL, 
	erasures BIGINT DEFAULT '0' NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "ledger" VALUES(1,'9d35b9d0-8115-4195-9415-8262de8a5fd4',0,0,NULL,NULL,NULL,0,0);
CREATE TABLE links (
	memory INTEGER NOT NULL, 
	kind TEXT NOT NULL, 
	other INTEGER NOT NULL, 
	PRIMARY KEY (memory, kind, other), 
	FOREIGN KEY(memory) REFERENCES memories (id), 
	FOREIGN KEY(other) REFERENCES memories (id)
)
 WITHOUT ROWID

;
CREATE TABLE memories (
	id INTEGER NOT NULL, 
	uid TEXT NOT NULL, 
	partition INTEGER NOT NULL, 
	user_id TEXT, 
	agent_id TEXT, 
	run_id TEXT, 
	kind TEXT NOT NULL, 
	text TEXT NOT NULL, 
	memory_type TEXT, 
	metadata JSON NOT NULL, 
	speaker TEXT, 
	actor_id TEXT, 
	role TEXT, 
	message_id TEXT, 
	session TEXT NOT NULL, 
	source_only BOOLEAN NOT NULL, 
	confidence FLOAT DEFAULT '1' NOT NULL, 
	at BIGINT NOT NULL, 
	previous INTEGER, 
	valid_from BIGINT NOT NULL, 
	valid_to BIGINT, 
	expires_at BIGINT, 
	created_at BIGINT NOT NULL, 
	updated_at BIGINT NOT NULL, 
	version INTEGER NOT NULL, 
	seq BIGINT NOT NULL, 
	embedding TEXT, 
	windows INTEGER NOT NULL, 
	answer_types SMALLINT DEFAULT '0' NOT NULL, 
	question_share FLOAT DEFAULT '0' NOT NULL, 
	PRIMARY KEY (id), 
	UNIQUE (uid), 
	FOREIGN KEY(partition) REFERENCES partitions (id)
);
CREATE TABLE mentions (
	memory INTEGER NOT NULL, 
	entity INTEGER NOT NULL, 
	kind SMALLINT NOT NULL, 
	at BIGINT NOT NULL, 
	PRIMARY KEY (memory, entity), 
	FOREIGN KEY(memory) REFERENCES memories (id), 
	FOREIGN KEY(entity) REFERENCES entities (id)
)
 WITHOUT ROWID

;
CREATE TABLE messages (
	"key" TEXT NOT NULL, 
	memory TEXT NOT NULL, 
	content_digest TEXT, 
	PRIMARY KEY ("key")
);
CREATE TABLE names (
	partition INTEGER NOT NULL, 
	"key" TEXT NOT NULL, 
	name TEXT NOT NULL, 
	at BIGINT NOT NULL, 
	PRIMARY KEY (partition, "key"), 
	FOREIGN KEY(partition) REFERENCES partitions (id)
)
 WITHOUT ROWID

;
CREATE TABLE partitions (
	id INTEGER NOT NULL, 
	"key" TEXT NOT NULL, 
	size INTEGER NOT NULL, 
	PRIMARY KEY (id), 
	UNIQUE ("key")
);
INSERT INTO "partitions" VALUES(1,'u:ana',0);
CREATE TABLE relations (
	id INTEGER NOT NULL, 
	uid TEXT NOT NULL, 
	partition INTEGER NOT NULL, 
	subject INTEGER NOT NULL, 
	predicate TEXT NOT NULL, 
	object INTEGER NOT NULL, 
	at BIGINT NOT NULL, 
	seq BIGINT NOT NULL, 
	PRIMARY KEY (id), 
	UNIQUE (partition, subject, predicate, object), 
	UNIQUE (uid), 
	FOREIGN KEY(partition) REFERENCES partitions (id), 
	FOREIGN KEY(subject) REFERENCES entities (id), 
	FOREIGN KEY(object) REFERENCES entities (id)
);
CREATE TABLE supports (
	relation INTEGER NOT NULL, 
	memory INTEGER NOT NULL, 
	fact TEXT NOT NULL, 
	valid_at BIGINT NOT NULL, 
	invalid_at BIGINT, 
	confidence FLOAT DEFAULT '1' NOT NULL, 
	PRIMARY KEY (relation, memory), 
	FOREIGN KEY(relation) REFERENCES relations (id), 
	FOREIGN KEY(memory) REFERENCES memories (id)
)
 WITHOUT ROWID

;
CREATE TABLE tasks (
	memory INTEGER NOT NULL, 
	kind TEXT NOT NULL, 
	version INTEGER NOT NULL, 
	attempts INTEGER NOT NULL, 
	error TEXT, 
	PRIMARY KEY (memory, kind), 
	FOREIGN KEY(memory) REFERENCES memories (id)
);
CREATE TABLE terms (
	partition INTEGER NOT NULL, 
	term BIGINT NOT NULL, 
	df INTEGER NOT NULL, 
	PRIMARY KEY (partition, term), 
	FOREIGN KEY(partition) REFERENCES partitions (id)
)
 WITHOUT ROWID

;
CREATE TABLE tombstones (
	uid TEXT NOT NULL, 
	kind TEXT NOT NULL, 
	partition TEXT NOT NULL, 
	user_id TEXT, 
	agent_id TEXT, 
	run_id TEXT, 
	at BIGINT NOT NULL, 
	seq BIGINT NOT NULL, 
	PRIMARY KEY (uid)
);
CREATE TABLE usage (
	operation TEXT NOT NULL, 
	model TEXT NOT NULL, 
	user_id TEXT NOT NULL, 
	agent_id TEXT NOT NULL, 
	run_id TEXT NOT NULL, 
	calls BIGINT NOT NULL, 
	prompt_tokens BIGINT NOT NULL, 
	completion_tokens BIGINT NOT NULL, 
	cached_tokens BIGINT NOT NULL, 
	seconds FLOAT NOT NULL, 
	cost FLOAT NOT NULL, 
	PRIMARY KEY (operation, model, user_id, agent_id, run_id)
)
 WITHOUT ROWID

;
CREATE INDEX messages_memory ON messages (memory);
CREATE INDEX events_memory ON events (memory, id);
CREATE UNIQUE INDEX tombstones_seq ON tombstones (seq);
CREATE INDEX memories_run ON memories (run_id, at);
CREATE INDEX memories_partition_at ON memories (partition, at);
CREATE UNIQUE INDEX memories_seq ON memories (seq);
CREATE INDEX memories_session ON memories (partition, session, at, id);
CREATE INDEX memories_previous ON memories (previous);
CREATE INDEX memories_agent ON memories (agent_id, at);
CREATE UNIQUE INDEX entities_seq ON entities (seq);
CREATE INDEX jobs_session ON jobs (partition, session);
CREATE INDEX further_runs_memory ON further_runs (memory, place);
CREATE INDEX links_other ON links (other);
CREATE INDEX items_agent ON items (agent_id, namespace);
CREATE INDEX items_expires ON items (expires_at);
CREATE INDEX items_user ON items (user_id, namespace);
CREATE INDEX items_memory ON items (memory);
CREATE INDEX mentions_best ON mentions (entity, kind, at DESC, memory);
CREATE INDEX relations_subject ON relations (subject, at DESC);
CREATE INDEX relations_object ON relations (object, at DESC);
CREATE UNIQUE INDEX relations_seq ON relations (seq);
CREATE INDEX supports_memory ON supports (memory);
CREATE VIEW history AS
SELECT uid AS id, memory AS memory_id, old_text AS old_memory, new_text AS new_memory, event,
       strftime('%Y-%m-%dT%H:%M:%S', memory_created_at / 1000000, 'unixepoch') || printf('.%06d+00:00', memory_created_at % 1000000) AS created_at, strftime('%Y-%m-%dT%H:%M:%S', at / 1000000, 'unixepoch') || printf('.%06d+00:00', at % 1000000) AS updated_at,
       CASE WHEN event = 'DELETE' THEN 1 ELSE 0 END AS is_deleted, actor_id, role
FROM events ORDER BY events.id;
COMMIT;
