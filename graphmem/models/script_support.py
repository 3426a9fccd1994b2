"""Which scripts an embedder reads, measured once for each by sentences that say the same in other words.

A model that was trained on English gives every sentence in Chinese or Greek nearly the same vector: its cosines rank
memories by chance, and a search is better off without them. Latin letters are taken to be read.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Sequence

import numpy as np

from graphmem.models.protocols import Embedder, Matrix
from graphmem.text import is_latin

# How many of the twelve sentences (six pairs, both ways) have to be nearest to their like. Measured with MiniLM:
# English 12, Han 5, Devanagari 4, all others 0 to 2; by chance it is 2.
MIN_SIMILARITY_RATIO = 9
# The share of a text's letters from which on it is not in Latin script.
FOREIGN = 0.25

# Pairs of sentences of one meaning that share hardly a word, by the first word of their signs' names in Unicode.
_PAIRS: dict[str, tuple[tuple[str, str], ...]] = {
    "CJK": (
        ("我家的狗生病了", "宠物犬身体不舒服"),
        ("他上个月搬到了北京", "近来那位朋友在首都居住"),
        ("妹妹喜欢弹钢琴", "她热爱演奏乐器"),
        ("这家餐厅太贵", "吃顿饭价格高得离谱"),
        ("周日会下雨", "天气预报说要带伞"),
        ("考试没有通过", "成绩不及格"),
    ),
    "HIRAGANA": (
        ("うちの犬が病気になった", "ペットの体調が悪いです"),
        ("彼は先月東京に引っ越した", "あの人は最近から首都で暮らしている"),
        ("妹はピアノを弾くのが好きだ", "彼女は音楽の演奏に夢中です"),
        ("このレストランは高すぎる", "食事の値段にびっくりした"),
        ("明日は雨が降るだろう", "天気予報によると傘が必要です"),
        ("試験に落ちてしまった", "テストは不合格でした"),
    ),
    "HANGUL": (
        ("우리 집 개가 아파요", "반려견 건강이 나쁩니다"),
        ("그는 지난달 서울로 이사했다", "그 친구는 요즘 수도에서 산다"),
        ("여동생은 피아노 치는 것을 좋아한다", "그녀는 악기 연주를 즐긴다"),
        ("이 식당은 너무 비싸다", "밥값이 터무니없이 높아요"),
        ("내일 비가 올 것이다", "일기예보에서 우산을 챙기래요"),
        ("시험에 떨어졌다", "합격하지 못했어요"),
    ),
    "CYRILLIC": (
        ("Наша собака заболела", "Домашний пёс плохо себя чувствует"),
        ("В прошлом месяце он переехал в Москву", "Теперь мой друг живёт в столице"),
        ("Сестра любит играть на пианино", "Ей нравится исполнять музыку"),
        ("Этот ресторан слишком дорогой", "Цены на еду там ужасно высокие"),
        ("Завтра будет дождь", "По прогнозу понадобится зонт"),
        ("Я не сдал экзамен", "Меня завалили на испытаниях"),
    ),
    "GREEK": (
        ("Ο σκύλος μας αρρώστησε", "Το κατοικίδιο δεν αισθάνεται καλά"),
        ("Μετακόμισε στην Αθήνα τον περασμένο μήνα", "Ο φίλος μου ζει τώρα στην πρωτεύουσα"),
        ("Η αδελφή μου παίζει πιάνο", "Της αρέσει να εκτελεί μουσική"),
        ("Αυτό το εστιατόριο είναι πολύ ακριβό", "Οι τιμές του φαγητού είναι υψηλές"),
        ("Αύριο θα βρέξει", "Η πρόγνωση λέει να πάρεις ομπρέλα"),
        ("Απέτυχα στις εξετάσεις", "Κόπηκα στο διαγώνισμα"),
    ),
    "ARABIC": (
        ("كلبنا مريض", "حيواننا الأليف ليس بصحة جيدة"),
        ("انتقل إلى القاهرة الشهر الماضي", "صديقي يسكن الآن في العاصمة"),
        ("أختي تحب العزف على البيانو", "تستمتع بأداء الموسيقى"),
        ("هذا المطعم غالي جدا", "أسعار الطعام مرتفعة"),
        ("سوف تمطر غدا", "النشرة الجوية تنصح بحمل المظلة"),
        ("رسبت في الامتحان", "لم أنجح في الاختبار"),
    ),
    "HEBREW": (
        ("הכלב שלנו חולה", "חיית המחמד לא מרגישה טוב"),
        ("הוא עבר לירושלים בחודש שעבר", "חבר שלי גר עכשיו בעיר הבירה"),
        ("אחותי אוהבת לנגן בפסנתר", "היא נהנית לבצע מוזיקה"),
        ("המסעדה הזאת יקרה מדי", "מחירי האוכל גבוהים"),
        ("מחר ירד גשם", "לפי התחזית צריך מטרייה"),
        ("נכשלתי במבחן", "לא עברתי את הבחינה"),
    ),
    "DEVANAGARI": (
        ("हमारा कुत्ता बीमार है", "पालतू जानवर की तबीयत खराब है"),
        ("वह पिछले महीने दिल्ली चला गया", "मेरा दोस्त अब राजधानी में रहता है"),
        ("मेरी बहन को पियानो बजाना पसंद है", "उसे संगीत से प्यार है"),
        ("यह रेस्तरां बहुत महंगा है", "खाने के दाम ऊँचे हैं"),
        ("कल बारिश होगी", "मौसम विभाग ने छाता रखने को कहा"),
        ("मैं परीक्षा में फेल हो गया", "इम्तिहान में सफल नहीं हुआ"),
    ),
    "THAI": (
        ("หมาของเราป่วย", "สัตว์เลี้ยงสุขภาพไม่ดี"),
        ("เขาย้ายไปกรุงเทพเมื่อเดือนที่แล้ว", "เพื่อนของฉันอยู่ในเมืองหลวงตอนนี้"),
        ("น้องสาวชอบเล่นเปียโน", "เธอหลงใหลการบรรเลงดนตรี"),
        ("ร้านอาหารนี้แพงเกินไป", "ราคาของกินสูงมาก"),
        ("พรุ่งนี้ฝนจะตก", "พยากรณ์อากาศบอกให้พกร่ม"),
        ("ฉันสอบตก", "ผลการทดสอบไม่ผ่าน"),
    ),
}


class ScriptSupport:
    """What one embedder reads. Safe to call from several threads."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self._known: dict[str, bool] = {}

    def supports(self, text: str) -> bool:
        """Whether the embedder reads a text's script. Asks the embedder at the first text in a script.

        A script that there are no sentences of is read by whoever reads most of the others. Raises ModelError.
        """
        script = script_of(text)
        if script is None:
            return True
        if script in _PAIRS:
            return self._measured([script])[script]
        return 2 * sum(self._measured(list(_PAIRS)).values()) > len(_PAIRS)

    def _measured(self, scripts: Sequence[str]) -> dict[str, bool]:
        """Which of the scripts are read. Two threads may measure the same at once: nobody waits for a lock."""
        unknown = [script for script in scripts if script not in self._known]
        if unknown:
            made = self._embedder.embed([sentence for one in unknown for pair in _PAIRS[one] for sentence in pair])
            rows = np.stack([windows[0] for windows in made])
            for script, mine in zip(unknown, np.split(rows, len(unknown)), strict=True):
                self._known[script] = _ties(mine[::2], mine[1::2]) >= MIN_SIMILARITY_RATIO
        return {script: self._known[script] for script in scripts}


def _ties(some: Matrix, others: Matrix) -> int:
    """How many sentences of either row are nearest to their like in the other."""
    cosines = some @ others.T
    own = np.arange(len(cosines))
    return int((cosines.argmax(axis=0) == own).sum() + (cosines.argmax(axis=1) == own).sum())


def script_of(text: str) -> str | None:
    """The script a text is written in, as Unicode names it; None if it is Latin, or there are no letters.

    Names and terms stand in Latin letters in texts of every script, seldom the other way: a text is in another script
    from a quarter of its letters on.
    """
    letters = [char for char in unicodedata.normalize("NFKC", text) if char.isalpha()]
    found = Counter(unicodedata.name(char, "").partition(" ")[0] for char in letters if not is_latin(char))
    if not found or found.total() < FOREIGN * len(letters):
        return None
    script = found.most_common(1)[0][0]
    is_japanese = script in ("CJK", "KATAKANA") and found.keys() & {"HIRAGANA", "KATAKANA"}
    return "HIRAGANA" if is_japanese else script
