// A relation's id is unique within its ledger.
CYPHER 5
CREATE CONSTRAINT graphmem_relation IF NOT EXISTS
FOR ()-[r:RELATES_TO]-() REQUIRE (r.ledger, r.id) IS UNIQUE
