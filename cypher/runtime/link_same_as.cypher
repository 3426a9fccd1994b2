// Links entities that mean the same, rows of [entity, other], once per pair. Skips an entity that does not exist yet:
// its own state adds the link.
CYPHER 5
UNWIND $rows AS row
MATCH (e:Entity {ledger: $ledger, id: row[0]})
MATCH (other:Entity {ledger: $ledger, id: row[1]})
MERGE (e)-[:SAME_AS {ledger: $ledger}]-(other)
