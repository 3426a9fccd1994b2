// A memory's id is one inside its ledger; other applications' memories have no ledger and are not constrained.
CYPHER 5
CREATE CONSTRAINT graphmem_memory IF NOT EXISTS
FOR (n:Memory) REQUIRE (n.ledger, n.id) IS UNIQUE
