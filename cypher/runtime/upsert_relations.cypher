// Writes relations whole, unless the stored ones are newer (`seq`). Returns the endpoints of the replaced ones.
CYPHER 5
UNWIND $rows AS row
OPTIONAL MATCH (a)-[old:RELATES_TO]->(b)
USING INDEX SEEK old:RELATES_TO(ledger, id)
WHERE old.ledger = $ledger AND old.id = row.id
WITH row, old, [a.id, b.id] AS ends
WHERE old IS NULL OR old.seq <= row.seq
DELETE old
WITH row, ends
MATCH (source:Entity {ledger: $ledger, id: row.source})
MATCH (target:Entity {ledger: $ledger, id: row.target})
CREATE (source)-[r:RELATES_TO {ledger: $ledger}]->(target)
SET r += row.properties,
    r.since = datetime(row.properties.since),
    r.until = datetime(row.properties.until)
WITH ends WHERE ends[0] IS NOT NULL
UNWIND ends AS end
RETURN collect(DISTINCT end) AS entities
