// Everything around somebody (or something): the memories, and what else they name.
// :param user => 'demo'
// :param name => 'Marlow Clinic'
// A part of the name will do. Look at the names at the rim: ask the same about one of them to go on from there.
CYPHER 5
MATCH (named:Entity)
WHERE (named.partition = $user OR named.partition ENDS WITH '/user:' + $user)
  AND ' ' + toLower(named.name) CONTAINS ' ' + toLower($name)
WITH named
ORDER BY toLower(named.name) = toLower($name) DESC, COUNT { (named)<-[:MENTIONS]-() } DESC LIMIT 1
MATCH (named)-[:SAME_AS*0..3]-(e)
WITH DISTINCT e
MATCH (e)<-[:MENTIONS]-(m:Memory)
WITH e, m ORDER BY m.at DESC LIMIT 15
MATCH path = (e)<-[:MENTIONS]-(m)-[r:MENTIONS]->(other)
RETURN path
ORDER BY r.kind
LIMIT 60
