// Returns the version of the Neo4j server.
CYPHER 5
CALL dbms.components() YIELD name, versions
WHERE name = 'Neo4j Kernel'
RETURN versions[0] AS version
