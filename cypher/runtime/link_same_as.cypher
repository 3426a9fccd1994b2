// Links entities that mean the same, [entity, other], once. One that is not here yet brings the link itself.
CYPHER 5
UNWIND $rows AS row
MATCH (e:Entity {ledger: $ledger, id: row[0]})
MATCH (other:Entity {ledger: $ledger, id: row[1]})
MERGE (e)-[:SAME_AS {ledger: $ledger}]-(other)
