// Links memories to the forgotten ones that they stand for, rows of [memory, merged]. Creates a placeholder for a merged
// memory that has not been delivered yet.
CYPHER 5
UNWIND $rows AS row
MATCH (m:Memory {ledger: $ledger, id: row[0]})
MERGE (merged:Memory {ledger: $ledger, id: row[1]})
CREATE (m)-[:COMPRESSES {ledger: $ledger}]->(merged)
