"""Tells messages that only greet, thank, take leave or nod ("Good morning!", "ok, thanks"), in several languages. Pure.

Such a message asks nothing, so no memory belongs in its prompt: by meaning "Good morning" is near to what somebody does
every morning. Only whole messages count: "Good morning, what did I plan for today?" asks.
"""

from __future__ import annotations

import re
from functools import cache

from graphmem.folding import fold

# A longer text has something to say.
MAX_SMALL_TALK_CHARS = 80

# Of languages with spaces between words: these phrases, divided by commas, as whole words.
_SPACED = """
hi, hi there, hiya, hey, hey there, hello, hello there, hi again, hello again, hi all, hi everyone, hello everyone, yo,
greetings, howdy, good morning, good afternoon, good evening, good day, good night, how are you,
how are you doing, how are you today, how is it going, how's it going, what's up, sup, nice to meet you, welcome back,
thanks, thanks a lot, thanks so much, thanks again, thank you, thank you so much, thank you very much, thank you again,
many thanks, thx, cheers, much appreciated, you're welcome, no problem, no worries,
bye, bye bye, bye for now, goodbye, good bye, see you, see you later, see you soon, see you tomorrow, see ya, take care,
have a nice day, have a good day, have a great day, have a nice evening, have a nice weekend, sleep well,
talk to you later,
ok, okay, alright, all right, got it, i see, great, cool, nice, perfect, awesome, wonderful, sounds good, lol, haha,
hallo, moin, moin moin, servus, grüß gott, grüß dich, grüezi, guten morgen, guten tag, guten abend, gute nacht,
schönen tag, schönen tag noch, schönen abend, schönen abend noch, schönes wochenende, wie geht's, wie geht es dir,
wie geht es ihnen, wie geht's dir, danke, danke schön, danke sehr, danke dir, danke ihnen, vielen dank, tausend dank,
herzlichen dank, bitte schön, gern geschehen, tschüss, ciao, auf wiedersehen, bis bald, bis dann, bis später,
bis morgen, mach's gut, alles klar, in ordnung, verstanden, super, prima, gut, na gut, genau,
bonjour, bonsoir, salut, coucou, bonne nuit, bonne journée, bonne soirée, bon week-end, ça va, comment ça va,
comment vas-tu, comment allez-vous, merci, merci beaucoup, merci bien, mille mercis, merci à toi, merci à vous, de rien,
je vous en prie, au revoir, à bientôt, à demain, à plus, à plus tard, à tout à l'heure, d'accord, très bien, parfait,
hola, buenos días, buenos dias, buen día, buen dia, buenas tardes, buenas noches, buenas, qué tal, que tal, cómo
estás, como estas, cómo está usted, gracias, muchas gracias, mil gracias, de nada, adiós, adios, hasta luego, hasta
mañana, hasta pronto, nos vemos, chao, de acuerdo,
muy bien, perfecto, genial,
buongiorno, buonasera, buonanotte, grazie, grazie mille, arrivederci, olá, oi, bom dia, boa tarde, boa noite, obrigado,
obrigada, muito obrigado, muito obrigada, tchau, até logo, até amanhã,
привет, здравствуйте, доброе утро, добрый день, добрый вечер, спокойной ночи, спасибо, большое спасибо, пока,
до свидания, хорошо, 안녕, 안녕하세요, 감사합니다, 고마워, 고마워요, 고맙습니다, 안녕히 가세요
"""
# Of languages without: in this order, with what may stand behind them.
_UNSPACED = (
    r"(?:[你您]好[吗嗎]?|大家好|嗨|哈[喽囉啰]|早安|早上好|上午好|中午好|下午好|晚上好|晚安|早"
    r"|(?:非常|十分|太|多)?[谢謝]{1,2}[你您]?|(?:非常|十分)?感[谢謝][你您]?|不客[气氣]|辛苦[你您]?了?"
    r"|再[见見]|拜拜|回[头頭][见見]|明天[见見]|待会[见見]|好的|好吧|好|[嗯哦噢]+|知道了|明白了?|收到|[没沒]问题|[没沒]問題|哈+"
    r"|こんにちは|こんばんは|おはよう(?:ございます)?|おやすみ(?:なさい)?|(?:どうも)?ありがとう(?:ございます|ございました)?|さようなら"
    r")[啊呀啦呢了吧哦]?"
)


@cache
def _pattern() -> re.Pattern[str]:
    phrases = {fold(" ".join(phrase.split())) for phrase in _SPACED.split(",")}
    spaced = "|".join(re.escape(phrase) for phrase in sorted(phrases, key=len, reverse=True))
    # Atomic: a phrase that matches is never tried as another one, or a row of "嗯" would take forever.
    return re.compile(rf"[\W_]*+(?:(?>(?<!\w)(?:{spaced})(?!\w)|{fold(_UNSPACED)})[\W_]*+)++")


def is_small_talk(text: str) -> bool:
    """Whether a text has nothing but greetings, thanks, goodbyes and nods, with any signs around them."""
    return len(text) <= MAX_SMALL_TALK_CHARS and (
        _pattern().fullmatch(" ".join(fold(text).replace("’", "'").split())) is not None
    )
