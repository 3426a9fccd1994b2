// What has changed, and what took its place?
// :param user => 'demo'
// An arrow REPLACES goes from the memory that holds now to the one that held before; "until" is when that ended. A
// memory without an arrow ended, and nothing is known to have followed.
CYPHER 5
MATCH (old:Memory)
WHERE (old.partition = $user OR old.partition ENDS WITH '/user:' + $user) AND old.valid_to IS NOT NULL
WITH old ORDER BY old.valid_to DESC LIMIT 20
OPTIONAL MATCH change = (:Memory)-[:REPLACES]->(old)
OPTIONAL MATCH about = (old)-[:MENTIONS]->(e:Entity) WHERE NOT e:Concept
RETURN old, change, about
LIMIT 60
