// An entity's mentions in the order of their worth: the best of a hub are read without touching the rest.
CYPHER 5
CREATE INDEX graphmem_mentions IF NOT EXISTS
FOR ()-[r:MENTIONS]-() ON (r.ledger, r.ekey, r.rank)
