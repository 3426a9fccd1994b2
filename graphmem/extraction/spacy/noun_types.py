"""Entity types by common noun: "sister" denotes a person, and so does the name in "my sister Greta"."""

from __future__ import annotations

from graphmem.model import EntityType

_NOUNS = {
    EntityType.PERSON: """
        sister brother mother father mom mum dad parent grandma grandpa grandmother grandfather aunt uncle cousin niece
        nephew son daughter child kid baby twin wife husband spouse partner girlfriend boyfriend fiancé fiancée fiance
        fiancee ex friend buddy pal mate roommate flatmate housemate neighbour neighbor colleague coworker boss manager
        mentor mentee teacher professor tutor coach trainer student pupil classmate doctor dentist nurse therapist
        lawyer judge landlord tenant client assistant intern secretary ceo cto cfo founder director president chairman
        king queen prince princess emperor pope saint minister senator mayor governor captain soldier general admiral
        author writer poet novelist journalist painter sculptor artist musician singer composer guitarist drummer
        pianist actor actress dancer filmmaker photographer architect engineer scientist physicist chemist biologist
        mathematician philosopher historian economist psychologist inventor explorer astronaut pilot driver carpenter
        plumber electrician mechanic farmer baker butcher chef cook waiter waitress barista hairdresser priest monk nun
        rabbi imam footballer player athlete swimmer runner politician activist man woman boy girl guy lady owner
        stepfather stepmother stepson stepdaughter stepbrother stepsister granddaughter grandson godmother godfather
    """,
    EntityType.PLACE: """
        city town village capital country state province county region district neighbourhood neighborhood suburb
        island continent mountain hill valley river lake sea ocean bay beach desert forest park square street airport
        station port harbour harbor castle palace bridge tower hometown
    """,
    EntityType.ORGANIZATION: """
        company startup firm business corporation bank band orchestra choir team club university college school
        employer agency ministry party charity foundation newspaper magazine publisher brand union
    """,
    EntityType.OBJECT: """
        movie film book novel song album poem painting show series game app laptop phone car bike motorbike bicycle
        boat guitar camera tablet console perfume anime podcast opera play musical
    """,
    EntityType.EVENT: "festival concert conference war battle tournament competition race marathon holiday ceremony",
    EntityType.CONCEPT: "language religion sport subject hobby dish cuisine colour color genre",
    EntityType.OTHER: """
        dog puppy pup cat kitten hamster rabbit bunny parrot budgie turtle tortoise horse pony goldfish snake lizard
        pet pig
    """,
}
NOUN_TYPES = {noun: type_ for type_, nouns in _NOUNS.items() for noun in nouns.split()}
