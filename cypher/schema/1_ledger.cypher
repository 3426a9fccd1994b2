// One marker node per ledger.
CYPHER 5
CREATE CONSTRAINT graphmem_ledger IF NOT EXISTS
FOR (n:GraphmemLedger) REQUIRE n.ledger IS UNIQUE
