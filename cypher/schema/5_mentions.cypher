// An entity's mentions, sorted by rank: reads the best mentions of a hub without touching the others.
CYPHER 5
CREATE INDEX graphmem_mentions IF NOT EXISTS
FOR ()-[r:MENTIONS]-() ON (r.ledger, r.ekey, r.rank)
