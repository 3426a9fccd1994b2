// Links facts and summaries to their sources, rows of [memory, source]. Creates a placeholder for a source that has
// not been delivered yet.
CYPHER 5
UNWIND $rows AS row
MATCH (m:Memory {ledger: $ledger, id: row[0]})
MERGE (source:Memory {ledger: $ledger, id: row[1]})
CREATE (m)-[:DRAWN_FROM {ledger: $ledger}]->(source)
