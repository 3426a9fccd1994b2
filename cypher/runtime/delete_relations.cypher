// Deletes relations. Returns the ids of their endpoints.
CYPHER 5
UNWIND $ids AS id
MATCH (a)-[r:RELATES_TO]->(b)
USING INDEX SEEK r:RELATES_TO(ledger, id)
WHERE r.ledger = $ledger AND r.id = id
DELETE r
WITH [a.id, b.id] AS ends
UNWIND ends AS end
RETURN collect(DISTINCT end) AS entities
