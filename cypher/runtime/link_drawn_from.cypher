// What facts and summaries were drawn from, [memory, source]; the source may not have arrived yet.
CYPHER 5
UNWIND $rows AS row
MATCH (m:Memory {ledger: $ledger, id: row[0]})
MERGE (source:Memory {ledger: $ledger, id: row[1]})
CREATE (m)-[:DRAWN_FROM {ledger: $ledger}]->(source)
