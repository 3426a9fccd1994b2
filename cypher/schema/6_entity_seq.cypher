// The few entities with a state (a chosen name or an alias): only these have a `seq`.
CYPHER 5
CREATE INDEX graphmem_entity_seq IF NOT EXISTS
FOR (n:Entity) ON (n.ledger, n.seq)
