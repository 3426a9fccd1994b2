// Writes the states of entities, unless the stored one is newer, and removes their earlier SAME_AS links. Returns the
// ids of those written.
CYPHER 5
UNWIND $rows AS row
MATCH (e:Entity {ledger: $ledger, id: row.id})
WHERE coalesce(e.version <= row.version, true)
SET e.version = row.version, e.name = row.name
WITH e
OPTIONAL MATCH (e)-[old:SAME_AS]-()
DELETE old
RETURN collect(DISTINCT e.id) AS written
