// Links memories to those that they retired, rows of [memory, retired]. Creates a placeholder for a retired memory that
// has not been delivered yet.
CYPHER 5
UNWIND $rows AS row
MATCH (m:Memory {ledger: $ledger, id: row[0]})
MERGE (retired:Memory {ledger: $ledger, id: row[1]})
CREATE (m)-[:REPLACES {ledger: $ledger}]->(retired)
