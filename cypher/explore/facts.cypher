// What is known about somebody (or something), as relations?
// :param user => 'demo'
// :param name => 'Samir Haddad'
// A part of the name will do. Click on an arrow: "fact" is the sentence that says so, "confidence" how sure the reader
// was, "memory_ids" where it stands.
CYPHER 5
MATCH (named:Entity)
WHERE (named.partition = $user OR named.partition ENDS WITH '/user:' + $user)
  AND ' ' + toLower(named.name) CONTAINS ' ' + toLower($name)
WITH named
ORDER BY toLower(named.name) = toLower($name) DESC, COUNT { (named)<-[:MENTIONS]-() } DESC LIMIT 1
MATCH (named)-[:SAME_AS*0..3]-(e)
WITH DISTINCT e
MATCH path = (e)-[r:RELATES_TO]-(other)
RETURN path
ORDER BY r.at DESC, r.predicate
LIMIT 40
