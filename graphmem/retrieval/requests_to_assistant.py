"""Tells requests to an assistant ("Tell me a joke") from texts that say something, by English and Chinese words. Pure.

A request says nothing that a later prompt needs, so blocks leave it out. In doubt a text is no request: one that also
tells something ("Suggest a dinner, I'm allergic to nuts"), one that is to be kept ("Remind me that the rent is due on
the 5th", "Call me Bo") and one about all later answers ("Always answer in French") stay.
"""

from __future__ import annotations

import re

from graphmem.retrieval.small_talk import is_small_talk
from graphmem.text import is_question, is_unspaced

# A longer text has something to work on in it, which may tell something.
MAX_REQUEST_CHARS = 300

_SENTENCE = re.compile(r"[^.!?。！？\n]+[.!?。！？]*")
_PLEASE = re.compile(r"^\W*(?:please|thank|麻烦[了你您]*|麻煩[了你您]*)\W*$", re.IGNORECASE)
# What may stand before the verb of a request. "You" has to be asked for something, not told it ("You write novels").
_LEAD = (
    r"(?:(?:hi|hey|hello|ok|okay|now|then|so|and|also|thanks)\b[ ,!.]*)*(?:please,? |kindly |just )*"
    r"(?:(?:can|could|would|will) (?:you|u) (?:please |kindly |maybe |also )*"
    r"|I(?:['’]d| would) like you to |I (?:want|need) you to |let['’]s have you )?(?:please )?(?:quickly |briefly )?"
)
# What follows a verb that is a request with such an object only ("make a list", but not "make sure").
_OBJECT = (
    r"(?:(?:an?|some|one|two|three|four|five|six|ten|twenty|\d+|another|the|this|that|these|those|it|what|how|which|when"
    r"|where|whether)\b|(?:to )?[\w-]+ an? )"
)
_ENGLISH = re.compile(
    rf"^\W*{_LEAD}(?:"
    r"(?:tell|show|sing|read|teach|explain to|help|recommend|suggest|send|find|get|draw|write|make|build|cook|bring"
    r"|quiz|entertain|surprise|cheer) (?:me|us)\b(?! know)(?! sure)"
    r"|give (?:me|us) (?!.*\b(?:answers?|replies|responses)\b)"
    rf"|(?:tell|write|make|draw|create|compose|generate|draft|find|list|design|recommend|suggest|describe|read|name|play"
    rf"|plan|check|review|fix|solve|edit|run|show|sing|invent|search for|look up|come up with) {_OBJECT}"
    r"|(?:translate|summari[sz]e|explain|proofread|rewrite|rephrase|paraphrase|calculate|compute|convert|compare|debug"
    r"|refactor|define|spell|count|brainstorm|outline|analy[sz]e|shorten|google|recite|repeat|continue|pretend|imagine)\b"
    r")",
    re.IGNORECASE,
)
# Words by which a request tells something, asks to keep something, or is about all later answers.
_SAYS_SOMETHING = re.compile(
    r"\b(?:I|we|he|she|they|I['’]\w+|we['’]\w+|he['’]\w+|she['’]\w+|they['’]\w+)\b"
    r"|\b(?:my|our|his|her|their) (?:[\w-]+ ){1,4}?(?:is|are|was|were|has|have|had|will|likes?|loves?|needs?|wants?)\b"
    r"|\bwho(?:se\b|['’]s\b| (?:is|was|has|\w+s)\b)|\b(?:because|since|due|named|called)\b"
    r"|\bover (?:any|every)\b|\bany day\b"
    r"|\b(?:remember|remind|note|forget|keep in mind|always|never|from now on|every time|whenever)\b",
    re.IGNORECASE,
)
# The name of somebody of the user's ("my boss Anna").
_NAMED_RELATIVE = re.compile(r"\b(?:[Mm]y|[Oo]ur) [a-z-]+(?: [a-z-]+)?,? [A-Z]\w")
# A first person that tells nothing: in the lead, and in what is asked for ("what I should cook").
_ASKING_I = re.compile(
    r"^\W*(?:please )?I(?:['’]d| would) like you to\b|^\W*(?:please )?I (?:want|need) you to\b"
    r"|\b(?:what|how|where|when|whether|if|why|which(?: \w+)?) (?:I|we) (?:should|can|could|might|must|would|need to)\b"
    r"|\b(?:am|are|is|was|were|do|does|did|have|has|can|could|shall|should|will|would) (?:I|we|he|she|they)\b",
    re.IGNORECASE,
)
_CHINESE_FOR_ME = r"(?:[给給帮幫替为為跟教陪]我[们們]?)"
_CHINESE_LEAD = (
    r"(?:你好|您好|嗨|那|现在|現在|再)?[，, ]*(?:请|請|麻烦|麻煩|拜托|拜託)?[你您]?(?:能不能|可不可以|可以|能|可否)?"
    r"(?:请|請|再|先)?(?:我(?:想|要|需要)(?:让|讓|请|請)?[你您])?"
)
_CHINESE_VERB = (
    r"(?:讲|講|说|說|写|寫|翻译|翻譯|推荐|推薦|解释|解釋|总结|總結|概括|列|画|畫|唱|做|生成|润色|潤色|改|计算|計算|算"
    r"|查|找|介绍|介紹|编|編|想|分析|比较|比較|设计|設計|出|检查|檢查|续写|續寫|朗读|朗讀|念|看|起|整理|修改|订正|訂正)"
)
_CHINESE_COUNT = "[个個首封篇段条條份张張句种種点點道则則本部家下些遍]"
_CHINESE_OBJECT = rf"(?:一?{_CHINESE_COUNT}|[两兩三四五六七八九十几幾\d]+{_CHINESE_COUNT})"
_CHINESE = re.compile(
    rf"^\W*{_CHINESE_LEAD}(?:"
    rf"{_CHINESE_FOR_ME}.{{0,4}}?{_CHINESE_VERB}|{_CHINESE_VERB}{_CHINESE_FOR_ME}|(?:告诉|告訴)我"
    rf"|{_CHINESE_VERB}{_CHINESE_OBJECT}|[把将將].{{1,40}}(?:翻译|翻譯|改写|改寫|改|写|寫|译|譯)成?"
    r"|(?:翻译|翻譯|总结|總結|概括|润色|潤色)(?:[这這以下上面:：]|成))"
)
_CHINESE_SAYS_SOMETHING = re.compile(
    r"记住|記住|记得|記得|提醒|别忘|別忘|叫我|称呼我|稱呼我|以后|以後|今后|今後|总是|總是|永远|永遠|每次|从现在|從現在|因为|因為"
    r"|一律|说话|說話|回答|回复|回覆|[他她]|我"
)
_CHINESE_ASKING_I = re.compile(
    rf"{_CHINESE_FOR_ME}|(?:告诉|告訴|让|讓|向|对|對|和)我|我(?:想|要|需要)(?:让|讓|请|請)?[你您]|我(?:该|該|应该|應該)"
)
# A query for what was asked ("What did I ask you to write?").
_ASKED = re.compile(
    r"\b(?:ask(?:ed|ing)?|request(?:s|ed|ing)?|prompt(?:s|ed)?)\b"
    r"|\bI (?:\w+ )?(?:want(?:ed)?|t(?:ell|old)|had|made) you\b"
    r"|我[^，。？?]{0,6}(?:让|讓|叫|请|請|要|要求|拜托|拜託|麻烦|麻煩)(?:过|過|了)?[你您]"
    r"|我[^，。？?]{0,6}(?:问|問|要求|请求|請求)|我的(?:请求|請求|要求|问题|問題|提问|提問)",
    re.IGNORECASE,
)


def asks_for_requests(query: str) -> bool:
    """Whether a query asks for what was asked of the assistant, or of somebody else."""
    return _ASKED.search(query) is not None and not is_request(query)


def is_request(text: str) -> bool:
    """Whether a text asks an assistant for something and tells nothing.

    Beside requests it may have greetings, thanks and questions.
    """
    if len(text) > MAX_REQUEST_CHARS:
        return False
    sentences = [sentence for sentence in _SENTENCE.findall(text) if sentence.strip()]
    others = [
        sentence
        for sentence in sentences
        if not (_CHINESE if is_unspaced(sentence) else _ENGLISH).match(sentence) or _tells_something(sentence)
    ]
    return len(others) < len(sentences) and all(
        is_small_talk(sentence) or _PLEASE.match(sentence) or (is_question(sentence) and not _tells_something(sentence))
        for sentence in others
    )


def _tells_something(sentence: str) -> bool:
    if is_unspaced(sentence):
        return _CHINESE_SAYS_SOMETHING.search(_CHINESE_ASKING_I.sub("", sentence)) is not None
    words = _ASKING_I.sub(" ", sentence)
    return _SAYS_SOMETHING.search(words) is not None or _NAMED_RELATIVE.search(words) is not None
