// What entities are called, unless what is held is newer, without the links from before. Returns what was written.
CYPHER 5
UNWIND $rows AS row
MATCH (e:Entity {ledger: $ledger, id: row.id})
WHERE coalesce(e.version <= row.version, true)
SET e.version = row.version, e.name = row.name
WITH e
OPTIONAL MATCH (e)-[old:SAME_AS]-()
DELETE old
RETURN collect(DISTINCT e.id) AS written
