// An entity's id, a hash of its partition and key, is unique within its ledger.
CYPHER 5
CREATE CONSTRAINT graphmem_entity IF NOT EXISTS
FOR (n:Entity) REQUIRE (n.ledger, n.id) IS UNIQUE
