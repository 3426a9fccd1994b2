// The few entities of which something is said beyond the texts: only those have a version.
CYPHER 5
CREATE INDEX graphmem_entity_version IF NOT EXISTS
FOR (n:Entity) ON (n.ledger, n.version)
