// A memory's id is unique within its ledger. Memories of other applications have no ledger and are not constrained.
CYPHER 5
CREATE CONSTRAINT graphmem_memory IF NOT EXISTS
FOR (n:Memory) REQUIRE (n.ledger, n.id) IS UNIQUE
