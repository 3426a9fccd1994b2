// Writes the states of entities, unless the stored ones are newer (`seq`), and removes their earlier SAME_AS links.
// Returns the ids of those written.
CYPHER 5
UNWIND $rows AS row
MATCH (e:Entity {ledger: $ledger, id: row.id})
WHERE coalesce(e.seq <= row.seq, true)
SET e.seq = row.seq, e.name = row.name
WITH e
OPTIONAL MATCH (e)-[old:SAME_AS]-()
DELETE old
RETURN collect(DISTINCT e.id) AS written
